"""The limit of concurrent trainings on all machines that share a Prefect server."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from schemas.execution import ExecutionConfig
from tasks.progress import warn_of_prefect

logger = logging.getLogger(__name__)
TRAINING_LIMIT: Final = "gif-training"
LEASE_SECONDS: Final = 60.0
"""Seconds after the holder's last renewal until a slot is freed; the minimum that the server accepts."""


@contextmanager
def training_slot(execution: ExecutionConfig) -> Iterator[None]:
    """Hold a slot of the limit `gif-training`, if the server has that limit; wait until one is free.

    Machines that train one model together take no slot: they would wait for each other. Losing a slot does not stop a
    training.
    """
    limit = None if execution.nodes != "1" else _find_limit()
    if limit is None:
        yield
        return
    if limit[0] >= limit[1]:
        logger.info("%d of %d trainings are running: waiting for one to end", *limit)
    with concurrency(TRAINING_LIMIT, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False):
        yield


def _find_limit() -> tuple[int, int] | None:
    """The numbers of used and of all slots, or None if the server has no limit."""
    with warn_of_prefect("which trainings run"), get_client(sync_client=True) as client:
        try:
            found = client.read_global_concurrency_limit_by_name(TRAINING_LIMIT)
        except ObjectNotFound:
            return None
        return (found.active_slots, found.limit) if found.active else None
    return None
