"""Which faults may pass by themselves, so that trying again makes sense."""

import errno
from typing import Any, Final

import httpx
from prefect import State, Task
from prefect.client.schemas.objects import TaskRun
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.task_engine import TaskRunTimeoutError

from gif_core.artifacts.errors import StoreAwayError
from schemas.errors import GifError

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
NETWORK: Final = (ConnectionError, TimeoutError, httpx.TransportError, ConcurrencySlotAcquisitionError, StoreAwayError)
CLIENTS: Final = ("aiohttp.client_exceptions", "botocore.exceptions")
"""Libraries below object storage, whose errors reach us when their own patience is at an end."""
LASTING: Final = ("Credential", "Param", "Validation", "Unknown", "Invalid", "NoRegion", "Profile", "Checksum")
"""Parts of the names of their errors that tell of a wrong setting."""


def may_pass(error: BaseException | None) -> bool:
    """Whether a fault lies with a disk, a network or a server, and not with what we were given or with the time set."""
    if isinstance(error, NETWORK) and not isinstance(error, TaskRunTimeoutError):
        return True
    if isinstance(error, GifError | ValueError | TaskRunTimeoutError):
        return False
    if type(error).__module__ in CLIENTS:
        return _of_a_client(error)
    return isinstance(error, OSError) and error.errno in PASSING


def _of_a_client(error: BaseException | None) -> bool:
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status in (408, 429)
    return not any(word in type(error).__name__ for word in LASTING)


def try_again(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """What Prefect asks before it tries a task again."""
    error = state.data
    return may_pass(error if isinstance(error, BaseException) else None)
