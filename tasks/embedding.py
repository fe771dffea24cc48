"""Embedding as a cached task made of cached parts."""

from gif_core.artifacts import Draft, Inputs
from gif_core.embedding import stage
from schemas.run import RunConfig
from tasks.parts import PrefectRunner
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("embedding")
def embedding(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Every identity gets the mean of its faces' encoder features (Eq. 3)."""
    show(stage.run(config, inputs, draft, PrefectRunner(config.execution)))
