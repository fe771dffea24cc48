"""Training as a cached task that resumes from its last checkpoint, on this machine or on another."""

from gif_core.artifacts import Draft, Inputs
from gif_core.training import stage
from schemas.run import RunConfig
from tasks.limits import training_slot
from tasks.progress import show
from tasks.stage import stage_task


@stage_task("training")
def training(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """A backbone learns to predict the code of a face and to meet its code vector (Eq. 10)."""
    show(stage.run(config, inputs, draft, training_slot(config.execution)))
