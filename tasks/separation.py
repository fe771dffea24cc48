"""Separation as a cached task that resumes from the checkpoint of a killed run."""

from gif_core.artifacts import Draft, Inputs
from gif_core.separation import stage
from schemas.run import RunConfig
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("separation", resumes=True)
def separation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Identity vectors move apart until they are uniform on the sphere (Eq. 4 to 6)."""
    show(stage.run(config, inputs, draft))
