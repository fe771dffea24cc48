"""Which errors are transient and worth a retry."""

import errno
from typing import Any, Final

import httpx
from prefect import State, Task
from prefect.client.schemas.objects import TaskRun
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.task_engine import TaskRunTimeoutError
from prefect.tasks import exponential_backoff

from gif_core.artifacts import StoreAwayError
from gif_core.artifacts import retry as of_storage
from gif_core.runtime import MachinesApartError
from gif_core.training.data import DecoderError
from schemas.errors import GifError
from schemas.execution import ExecutionConfig

PASSING: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""Transient errors of disks and networks; a full disk or a missing file is not transient."""
AWAY: Final = (
    httpx.TransportError,
    ConcurrencySlotAcquisitionError,
    StoreAwayError,
    DecoderError,
    MachinesApartError,
)
"""Prefect's server does not answer, the store has not answered until its timeout, a decoder process was killed, or
machines that work together have lost each other."""
JITTER: Final = 0.3
"""Random share of the delay, so that machines that lost one server do not all retry at once."""


def may_pass(error: BaseException | None) -> bool:
    """Whether an error comes from a disk, a network or a server, rather than from the input or a timeout."""
    if error is None or isinstance(error, TaskRunTimeoutError):
        return False
    if isinstance(error, AWAY) or of_storage.may_pass(error):
        return True
    if isinstance(error, GifError | ValueError):
        return False
    return isinstance(error, OSError) and error.errno in PASSING


def try_again(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Prefect's retry condition: retry transient errors only."""
    error = state.data
    return may_pass(error if isinstance(error, BaseException) else None)


def patience(execution: ExecutionConfig) -> dict[str, Any]:
    """The task options for the retries and delays of this run's settings."""
    return {
        "retries": execution.retries,
        "retry_delay_seconds": exponential_backoff(execution.retry_seconds),
        "retry_jitter_factor": JITTER,
    }
