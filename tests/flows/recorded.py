"""What the real Prefect server has recorded of a flow run's tasks."""

import time

from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import TaskRun

PATIENCE = 30.0
"""Seconds: the server hears of tasks by events, which may come after the flow run has ended."""


def stage_of(task: TaskRun) -> str:
    return task.name.rsplit("-", 1)[0]


def has_ended(task: TaskRun) -> bool:
    return task.state is not None and task.state.is_final()


def task_runs(state: State, *stages: str) -> list[TaskRun]:
    """The tasks of the flow run with this state, once the server knows how those of these stages have ended."""
    run = FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id]))
    end = time.monotonic() + PATIENCE
    while True:
        with get_client(sync_client=True) as client:
            found = client.read_task_runs(flow_run_filter=run)
        if {stage_of(task) for task in found if has_ended(task)} >= set(stages) or time.monotonic() > end:
            return found
        time.sleep(0.1)
