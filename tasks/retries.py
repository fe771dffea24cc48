"""Which faults may pass by themselves, so that trying again makes sense."""

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
"""What disks and networks say when they are away for a while; a full disk or a missing file stays as it is."""
AWAY: Final = (httpx.TransportError, ConcurrencySlotAcquisitionError, StoreAwayError, DecoderError)
"""Prefect's server that does not answer, a store that has not for as long as anybody waits, and a process that decoded
images and was killed."""
JITTER: Final = 0.3
"""Machines that lost the same server do not all come back at once."""


def may_pass(error: BaseException | None) -> bool:
    """Whether a fault lies with a disk, a network or a server, and not with what we were given or with the time set."""
    if error is None or isinstance(error, TaskRunTimeoutError):
        return False
    if isinstance(error, AWAY) or of_storage.may_pass(error):
        return True
    if isinstance(error, GifError | ValueError):
        return False
    return isinstance(error, OSError) and error.errno in PASSING


def try_again(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """What Prefect asks before it tries a task again."""
    error = state.data
    return may_pass(error if isinstance(error, BaseException) else None)


def patience(execution: ExecutionConfig) -> dict[str, Any]:
    """Options of a task that is tried again as often, and after such pauses, as the run is told."""
    return {
        "retries": execution.retries,
        "retry_delay_seconds": exponential_backoff(execution.retry_seconds),
        "retry_jitter_factor": JITTER,
    }
