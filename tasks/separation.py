"""Separation as a cached task that resumes from its last checkpoint, on this machine or on another."""

from gif_core.artifacts import Draft, Inputs
from gif_core.separation import stage
from schemas.run import RunConfig
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("separation")
def separation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Identity vectors move apart until they are uniform on the sphere (Eq. 4 to 6)."""
    show(stage.run(config, inputs, draft))
