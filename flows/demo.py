"""The flow `demo`: the pipeline on synthetic faces, and before it a classifier with the same budget."""

from typing import Final

from prefect import flow

from flows.stages import Run, flow_store
from gif_core.runtime import milestones
from schemas.artifacts import RunRecord
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

SCORED: Final[tuple[StageName, ...]] = STAGES[: STAGES.index("reporting")]


@flow(name="demo", validate_parameters=True)
def demo(config: RunConfig, rival: RunConfig) -> RunRecord:
    """Score `rival`, then run `config`, whose report shows both."""
    with flow_store(config) as store:
        milestones.info("first model: %s", rival.training.head)
        Run.begin(store, rival, SCORED).go_through(rival, SCORED)
        milestones.info("second model: %s", config.training.head)
        return Run.begin(store, config).go_through(config, STAGES)
