"""Leases: the run that computes an artifact renews one, so that other runs wait instead of computing the same.

A lease is a file `leases/<stage>-<key>-<number>`, created conditionally; the highest number is valid. Leases only save
work: the manifest alone decides what is published.
"""

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from gif_core.artifacts.attempts import attempt_name, owner_state
from gif_core.artifacts.errors import StoreError
from gif_core.artifacts.storage import Storage
from gif_core.runtime import with_log_fields
from schemas.artifacts import ArtifactRef

logger = logging.getLogger(__name__)
LEASES: Final = "leases"
NAME: Final = re.compile(r"[a-z]+-[0-9a-f]{64}-(\d{6})")
POLL_SECONDS = 1.0
RENEW_SECONDS = 10.0
STALE_SECONDS = 45.0
"""A lease that was not renewed for this long has ended."""
REPORT_SECONDS = 60.0
"""Time between two log lines while waiting for another run."""


@dataclass(frozen=True)
class Lease:
    """The content of one lease file."""

    path: str
    number: int
    content: bytes

    @property
    def artifact(self) -> str:
        """The folder of the artifact, `stage/key`."""
        stage, key, _ = self.path.rpartition("/")[2].split("-")
        return f"{stage}/{key}"

    @property
    def holder(self) -> str:
        """Name of the holder: host, process and random digits."""
        try:
            return str(json.loads(self.content)["holder"])
        except (ValueError, KeyError, TypeError):
            return "unknown"


@contextmanager
def only_one(storage: Storage, ref: ArtifactRef) -> Iterator[None]:
    """Hold the lease of an artifact, after waiting until no other process holds it."""
    holder = attempt_name()
    lease = _take(storage, ref, holder)
    ended = Event()
    renewing = Thread(
        target=with_log_fields(_renew), args=(storage, ref, lease, holder, ended), daemon=True, name="gif-lease"
    )
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        with storage.hurried():
            renewing.join()
            _release(storage, ref, lease, holder)


def _take(storage: Storage, ref: ArtifactRef, holder: str) -> Lease:
    watch = _Watch()
    while True:
        found = _newest(storage, ref)
        if found is None or watch.is_over(found, ref):
            number = found.number + 1 if found else 1
            lease = Lease(f"{LEASES}/{ref.stage}-{ref.key}-{number:06d}", number, _content(holder, 0))
            with suppress(FileExistsError):
                storage.create(lease.path, lease.content)
                return lease
        else:
            time.sleep(POLL_SECONDS)


class _Watch:
    """Watches whether a lease is renewed, by this process's clock only: clocks of machines are never compared."""

    def __init__(self) -> None:
        self.seen: Lease | None = None
        self.since = self.last = self.reported = 0.0

    def is_over(self, lease: Lease, ref: ArtifactRef) -> bool:
        """Whether the holder is dead, or has not renewed the lease for `STALE_SECONDS` of uninterrupted watching."""
        now = time.monotonic()
        if lease != self.seen or now - self.last > RENEW_SECONDS:
            self.seen, self.since = lease, now
        self.last = now
        if owner_state(lease.holder) == "dead" or now - self.since > STALE_SECONDS:
            logger.warning("%s was being computed by %s, which has ended: taking over", ref, lease.holder)
            return True
        if not self.reported or now - self.reported > REPORT_SECONDS:
            self.reported = now
            logger.warning("%s is being computed by another run, %s: waiting for it", ref, lease.holder)
        return False


def find_leases(storage: Storage, artifact: str = "") -> Iterator[Lease]:
    """All leases, or those of one artifact."""
    for file in storage.find(LEASES):
        named = NAME.fullmatch(file.path.rpartition("/")[2])
        if named and file.path.startswith(f"{LEASES}/{artifact.replace('/', '-')}"):
            with suppress(FileNotFoundError):
                yield Lease(file.path, int(named[1]), storage.read(file.path))


def _newest(storage: Storage, ref: ArtifactRef) -> Lease | None:
    found = find_leases(storage, f"{ref.stage}/{ref.key}")
    return max(found, key=lambda lease: lease.number, default=None)


def _renew(storage: Storage, ref: ArtifactRef, lease: Lease, holder: str, ended: Event) -> None:
    """Increment the counter in the lease file until the work ends."""
    renewals = 0
    while not ended.wait(RENEW_SECONDS):
        renewals += 1
        try:
            newest = _newest(storage, ref)
            if newest is None or newest.holder != holder:
                logger.warning("another run has taken over %s: both continue, and the first to finish publishes", ref)
                return
            storage.replace(lease.path, _content(holder, renewals))
        except OSError as error:
            logger.warning("the lease of %s could not be renewed: %s", ref, error)


def _release(storage: Storage, ref: ArtifactRef, lease: Lease, holder: str) -> None:
    """Remove this lease and ended ones with lower numbers."""
    try:
        for found in list(find_leases(storage, f"{ref.stage}/{ref.key}")):
            if found.number < lease.number or found.holder == holder:
                storage.remove(found.path)
    except StoreError as error:
        logger.warning("%s could not be removed and will expire: %s", lease.path, error)


def _content(holder: str, renewals: int) -> bytes:
    return json.dumps({"holder": holder, "renewals": renewals}).encode()
