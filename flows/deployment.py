"""Objects on a Prefect server besides deployments: work pool, limit of concurrent trainings, watch over dead runs."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

from tasks.limits import TRAINING_LIMIT

FLOWS: Final = ["gif", "retrain"]
WATCH: Final = "gif: runs whose process is gone"
SILENCE: Final = timedelta(seconds=90)
"""Three heartbeats (`PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30`)."""
ENDS: Final = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed", "Paused")}
HEARTBEAT: Final = "prefect.flow-run.heartbeat"


def ensure_pool(name: str, kind: str) -> None:
    """Create the work pool unless it exists."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=name, type=kind))


def missing_deployments(file: Path, *, reset: bool = False) -> list[str]:
    """Names of the deployments of a prefect.yaml that the server does not have; all of them with `reset`."""
    named = [each["name"] for each in yaml.safe_load(file.read_text("utf-8"))["deployments"]]
    with get_client(sync_client=True) as client:
        ours = FlowFilter(name=FlowFilterName(any_=FLOWS))
        known = {each.name for each in client.read_deployments(flow_filter=ours)}
    return [name for name in named if reset or name not in known]


def ensure_limit(trainings: int = 1) -> None:
    """Limit the number of concurrent trainings, unless the server has a limit already."""
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(TRAINING_LIMIT)
        except ObjectNotFound:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=TRAINING_LIMIT, limit=trainings))


def ensure_watch() -> None:
    """Create the automation that marks runs as Crashed when their heartbeats stop without an end state."""
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(WATCH):
            client.create_automation(_watch())


def _watch() -> AutomationCore:
    trigger = EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related={"prefect.resource.role": "flow", "prefect.resource.name": FLOWS},
        for_each={"prefect.resource.id"},
        after={HEARTBEAT},
        expect={HEARTBEAT, *ENDS},
        posture=Posture.Proactive,
        threshold=1,
        within=SILENCE,
    )
    message = "No heartbeat from its process for 90 seconds. Published artifacts are safe: run it again to continue."
    crashed = ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message)
    return AutomationCore(
        name=WATCH,
        description="Marks runs of gif as Crashed when their heartbeats stop.",
        trigger=trigger,
        actions=[crashed],
    )
