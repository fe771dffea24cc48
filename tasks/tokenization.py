"""Tokenization as a cached task."""

from gif_core.artifacts import Draft, Inputs
from gif_core.tokenization import stage
from schemas.run import RunConfig
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("tokenization")
def tokenization(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Code vectors are clustered level by level, and the path of an identity is its code (Algorithm 1)."""
    show(stage.run(config, inputs, draft))
