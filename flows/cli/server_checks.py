"""Checks of Prefect's server for `gif doctor`: health, scheduled runs, workers, limit and crash watch."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flows.cli.checks import Check
from flows.cli.deploy import POOL

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

NOT_FOUND = 404
YOUNG = timedelta(minutes=3)
"""A deployment younger than this may not have scheduled runs yet."""


def check_server() -> Iterator[Check]:
    """Check health, version, deployments and their schedules, worker, limit and watch."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        advice = "'gif run' starts one for itself; for deployments and schedules: gif up"
        yield Check("Prefect server", "warn", "PREFECT_API_URL is not set", advice)
        return
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        fault = client.api_healthcheck()
        if fault is not None:
            advice = "start it (gif up, prefect server start), or correct PREFECT_API_URL"
            yield Check("Prefect server", "fail", f"{url} does not answer: {fault}", advice)
            return
        yield _check_version(client, url)
        yield from _check_deployments(client)
        yield _check_worker(client)
        yield from _check_rules(client)


def _check_version(client: "SyncPrefectClient", url: str) -> Check:
    import prefect

    there, here = client.api_version(), prefect.__version__
    if there != here:
        return Check("Prefect server", "warn", f"{there} at {url}, {here} here", "use the same version on both sides")
    return Check("Prefect server", "ok", f"{there} at {url}")


def _check_deployments(client: "SyncPrefectClient") -> Iterator[Check]:
    """The scheduler works if every active schedule has runs waiting."""
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    from flows.deployment import FLOWS

    found = client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=FLOWS)))
    if not found:
        yield Check("deployments", "warn", "none", "gif deploy")
        return
    yield Check("deployments", "ok", ", ".join(sorted(deployment.name for deployment in found)))
    scheduled = [each for each in found if not each.paused and any(schedule.active for schedule in each.schedules)]
    waiting = [each.name for each in scheduled if not _has_runs(client, each)]
    if waiting:
        advice = "the server's log says why; its SQLAlchemy must be below 2.1, and its scheduler enabled"
        yield Check("scheduler", "fail", f"no run is scheduled for {', '.join(waiting)}", advice)
    else:
        names = ", ".join(each.name for each in scheduled) or "no deployment has an active schedule"
        yield Check("scheduler", "ok", names)


def _has_runs(client: "SyncPrefectClient", deployment: "DeploymentResponse") -> bool:
    from prefect.client.schemas.filters import (
        DeploymentFilter,
        DeploymentFilterId,
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType

    young = deployment.updated is not None and datetime.now(UTC) - deployment.updated < YOUNG
    of_it = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
    runs = client.read_flow_runs(deployment_filter=of_it, flow_run_filter=FlowRunFilter(state=states), limit=1)
    return young or bool(runs)


def _check_worker(client: "SyncPrefectClient") -> Check:
    from prefect.exceptions import PrefectHTTPStatusError

    try:
        workers = client.read_workers_for_work_pool(POOL)
    except PrefectHTTPStatusError as error:
        if error.response.status_code != NOT_FOUND:
            raise
        return Check("worker", "warn", f"there is no work pool {POOL}", "gif deploy")
    online = [worker.name for worker in workers if str(worker.status).endswith("ONLINE")]
    if not online:
        return Check(
            "worker", "warn", f"no worker is online for the work pool {POOL}", f"prefect worker start --pool {POOL}"
        )
    return Check("worker", "ok", ", ".join(online))


def _check_rules(client: "SyncPrefectClient") -> Iterator[Check]:
    """Check the limit of concurrent trainings and the watch over dead runs."""
    from prefect.exceptions import ObjectNotFound

    from flows.deployment import WATCH
    from tasks.limits import TRAINING_LIMIT

    try:
        limit = client.read_global_concurrency_limit_by_name(TRAINING_LIMIT)
        yield Check("trainings", "ok", f"{limit.active_slots} running, at most {limit.limit} at a time")
    except ObjectNotFound:
        yield Check("trainings", "warn", "no limit: any number may run at a time", "gif deploy")
    watched = any(found.enabled for found in client.read_automations_by_name(WATCH))
    if watched:
        yield Check("dead runs", "ok", "are marked as Crashed")
    else:
        yield Check("dead runs", "warn", "stay Running for ever", "gif deploy")
