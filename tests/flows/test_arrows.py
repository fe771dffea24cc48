"""In Prefect's UI a run of which everything is stored is one graph: cached stages keep the arrows of their inputs."""

import pytest
from prefect.client.orchestration import get_client

from flows.pipeline import gif
from schemas.run import RunConfig
from schemas.stages import INPUTS
from tests.flows.stored import store_everything


@pytest.mark.usefixtures("prefect")
def test_a_cached_run_has_an_arrow_from_every_stage_to_those_that_read_it(tiny: RunConfig) -> None:
    store_everything(tiny)
    state = gif(tiny, return_state=True)
    with get_client(sync_client=True) as client:
        runs = [run for run in client.read_task_runs(limit=50) if run.flow_run_id == state.state_details.flow_run_id]
    names = {run.id: run.name.rpartition("-")[0] for run in runs}
    arrows = {
        names[run.id]: {names[source.id] for source in run.task_inputs.get("wait_for", []) if source.id in names}
        for run in runs
    }
    assert arrows == {stage: set(inputs) for stage, inputs in INPUTS.items()}
