"""Evaluation as a cached task; the features of large sets are cached parts of it."""

from gif_core.artifacts import Draft, Inputs
from gif_core.evaluation import stage
from schemas.run import RunConfig
from tasks.parts import PrefectRunner
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("evaluation")
def evaluation(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Pairs and templates of identities never trained on are verified and identified."""
    show(stage.run(config, inputs, draft, PrefectRunner(config.execution)))
