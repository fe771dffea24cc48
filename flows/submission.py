"""Runs of the deployed pipeline on a work pool: each submitted once, all waited for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterTags,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import Scheduled

from schemas.errors import GifError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from schemas.run import RunConfig

FLOW, DEPLOYMENT = "gif", "full-pipeline"
TAG: Final = "gif-sweep"
POLL: Final = 2.0
"""Seconds between two looks at the runs that have not ended."""
PAGE: Final = 200
"""Most runs that the server gives at a time."""


def find_deployment(pool: str) -> UUID:
    """The deployment of the whole pipeline on this work pool."""
    flow, work_pool = FlowFilterName(any_=[FLOW]), WorkPoolFilterName(any_=[pool])
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            raise GifError(
                f"there is no work pool {pool!r} on {client.api_url}: 'gif deploy' makes one, `gif`"
            ) from None
        found = client.read_deployments(
            flow_filter=FlowFilter(name=flow), work_pool_filter=WorkPoolFilter(name=work_pool)
        )
    deployments = {each.name: each.id for each in found}
    if DEPLOYMENT not in deployments:
        raise GifError(f"no deployment {FLOW}/{DEPLOYMENT} is on the work pool {pool!r}: 'gif deploy' puts it on `gif`")
    return deployments[DEPLOYMENT]


def has_worker(pool: str) -> bool:
    """Whether a worker of the pool has been heard of lately."""
    with get_client(sync_client=True) as client:
        return any(each.status == WorkerStatus.ONLINE for each in client.read_workers_for_work_pool(pool))


def submit_run(deployment: UUID, config: RunConfig, key: str, name: str) -> UUID:
    """Submit a run of these settings, unless one with the same key, that of its scores, is waiting or running."""
    tags = [TAG, f"scores/{key}"]
    with get_client(sync_client=True) as client:
        earlier = client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=tags)))
        going_on = [each.id for each in earlier if each.state is not None and not each.state.is_final()]
        if going_on:
            return going_on[0]
        created = client.create_flow_run_from_deployment(
            deployment, parameters={"config": parameters_of(config)}, name=name, tags=tags, state=Scheduled()
        )
    return created.id


def parameters_of(config: RunConfig) -> dict[str, Any]:
    """All settings, whatever the worker's defaults are; a local store becomes an absolute path."""
    settings = config.model_dump(mode="json", exclude={"preset"})
    return settings if "://" in config.store else settings | {"store": str(Path(config.store).absolute())}


def wait_for_runs(runs: Sequence[UUID]) -> Iterator[tuple[UUID, str | None]]:
    """Yield every run when it has ended, with its error if it did not complete."""
    waiting = list(dict.fromkeys(runs))
    with get_client(sync_client=True) as client:
        while waiting:
            for run, error in _ended(client, waiting).items():
                waiting.remove(run)
                yield run, error
            if waiting:
                time.sleep(POLL)


def _ended(client: SyncPrefectClient, runs: Sequence[UUID]) -> Mapping[UUID, str | None]:
    """Those of the runs that have ended; a run that was deleted has ended, too."""
    known: dict[UUID, FlowRun] = {}
    for start in range(0, len(runs), PAGE):
        some = FlowRunFilterId(any_=list(runs[start : start + PAGE]))
        known |= {each.id: each for each in client.read_flow_runs(flow_run_filter=FlowRunFilter(id=some), limit=PAGE)}
    ended: dict[UUID, str | None] = {run: "it was deleted" for run in runs if run not in known}
    return ended | {run: _error_of(each) for run, each in known.items() if each.state and each.state.is_final()}


def _error_of(run: FlowRun) -> str | None:
    state = run.state
    if state is None or state.is_completed():
        return None
    return f"{state.name}: {state.message}" if state.message else state.name
