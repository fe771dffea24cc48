"""Ingestion as a cached task that keeps the shards of a killed run."""

from gif_core.artifacts import Draft, Inputs
from gif_core.ingestion import stage
from schemas.run import RunConfig
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("ingestion", resumes=True)
def ingestion(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Faces of any source become Arrow shards with dense identity ids."""
    show(stage.run(config, inputs, draft))
