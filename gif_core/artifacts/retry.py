"""Retries of requests to a store: which errors are retried, for how long, and what the final error says."""

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Final, ParamSpec, TypeVar

from aiohttp import ClientError as TransferError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.exceptions import HTTPClientError, IncompleteReadError, NoCredentialsError
from botocore.parsers import ResponseParserError

from gif_core.artifacts.errors import StoreAwayError, StoreRefusedError
from schemas.addresses import hide_credentials

logger = logging.getLogger(__name__)
P = ParamSpec("P")
Answer = TypeVar("Answer")

SECONDS: Final = "GIF_STORE_PATIENCE"
"""Environment variable with the time limit of retries in seconds."""
DEFAULT_SECONDS: Final = 300.0
HURRIED_SECONDS: Final = 2.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
NO_ANSWER: Final = (
    NoConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
    TransferError,
    ConnectionError,
    TimeoutError,
)
PASSING_CODES: Final = {
    "RequestTimeout",
    "SlowDown",
    "ConditionalRequestConflict",
    "OperationAborted",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
}
"""Error codes below status 500 that a retry may resolve: damaged or lost bytes, and concurrent writers."""
_jitter = random.Random()


def patience_seconds() -> float:
    """`$GIF_STORE_PATIENCE`, else five minutes."""
    given = os.environ.get(SECONDS)
    try:
        return float(given) if given else DEFAULT_SECONDS
    except ValueError:
        raise ValueError(f"{SECONDS} must be a number of seconds, not {given!r}") from None


class Patience:
    """Retries requests to one store until one succeeds or the time limit is reached."""

    def __init__(self, url: str) -> None:
        """The time limit applies to each request."""
        self.url, self.seconds = url, patience_seconds()
        self._hurry, self._reported = Event(), 0.0

    def __call__(self, request: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
        """The answer to a request; errors that a retry cannot resolve are raised at once."""
        began, pauses = time.monotonic(), _pauses()
        while True:
            try:
                return request(*args, **kwargs)
            except Exception as error:
                if not may_pass(error):
                    explained = _explain(error, self.url)
                    if explained is None:
                        raise
                    raise explained from error
                self._pause(next(pauses), time.monotonic() - began, error)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Inside the block, requests are retried only briefly, for instance while an error waits to be shown."""
        nested = self._hurry.is_set()
        self._hurry.set()
        try:
            yield
        finally:
            if not nested:
                self._hurry.clear()

    def _pause(self, seconds: float, waited: float, error: Exception) -> None:
        limit = min(HURRIED_SECONDS, self.seconds) if self._hurry.is_set() else self.seconds
        if waited >= limit:
            advice = f"run the same command again when it does ({SECONDS} sets how long to wait)"
            reason = hide_credentials(str(error))
            raise StoreAwayError(f"{self.url} has not answered for {waited:.0f} s: {reason}; {advice}") from error
        seconds = min(seconds, limit - waited)
        if time.monotonic() - self._reported > 1.0:
            self._reported = time.monotonic()
            reason = hide_credentials(str(error))
            logger.warning("%s: trying again in %.1f s (%s)", _what_happened(error), seconds, reason)
        time.sleep(seconds) if self._hurry.is_set() else self._hurry.wait(seconds)


def may_pass(error: BaseException) -> bool:
    """Whether a retry can help: no connection, timeout, incomplete answer, or a server error."""
    status, code = _answer(error)
    if status is not None:
        return status >= 500 or status == 429 or code in PASSING_CODES
    return isinstance(error, NO_ANSWER)


def _pauses() -> Iterator[float]:
    """Exponential backoff with jitter."""
    pause = FIRST_PAUSE
    while True:
        yield pause * _jitter.uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE)


def _answer(error: BaseException) -> tuple[int | None, str]:
    """HTTP status and error code of the answer that caused the error, if there was one."""
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, dict) and "ResponseMetadata" in response:
            return response["ResponseMetadata"].get("HTTPStatusCode"), response.get("Error", {}).get("Code", "")
    return None, ""


def _what_happened(error: BaseException) -> str:
    status, code = _answer(error)
    return f"the store answers {status} {code}" if status else "the store does not answer"


def _explain(error: Exception, url: str) -> StoreRefusedError | None:
    """An error with advice, for causes that are known."""
    status, code = _answer(error)
    if code == "RequestTimeTooSkewed":
        return StoreRefusedError(f"the clocks of {url} and this machine differ too much: correct the wrong one")
    if code == "NoSuchBucket":
        return StoreRefusedError(f"{url}: there is no such bucket; create it, or choose another store")
    if isinstance(error, NoCredentialsError) or status in (401, 403):
        advice = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the block that GIF_S3_BLOCK names"
        return StoreRefusedError(f"{url} refuses access ({code or hide_credentials(str(error))}); {advice}")
    return None
