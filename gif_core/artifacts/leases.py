"""Who is making an artifact: a lease that its holder renews, so that no other run makes the same meanwhile.

A lease is a file `leases/<stage>-<key>-<number>`, created conditionally; the one with the highest number counts. It
saves work and decides nothing: what is published is decided by the manifest alone.
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
from gif_core.runtime import carrying_on
from schemas.artifacts import ArtifactRef

logger = logging.getLogger(__name__)
LEASES: Final = "leases"
NAME: Final = re.compile(r"[a-z]+-[0-9a-f]{64}-(\d{6})")
POLL_SECONDS = 1.0
RENEW_SECONDS = 10.0
STALE_SECONDS = 45.0
"""A lease of another machine that was not renewed for so long is nobody's."""
TELL_SECONDS = 60.0


@dataclass(frozen=True)
class Lease:
    """One lease as it was read."""

    path: str
    number: int
    content: bytes

    @property
    def artifact(self) -> str:
        """The folder of what is being made, `stage/key`."""
        stage, key, _ = self.path.rpartition("/")[2].split("-")
        return f"{stage}/{key}"

    @property
    def holder(self) -> str:
        """Host, process and a random part."""
        try:
            return str(json.loads(self.content)["holder"])
        except (ValueError, KeyError, TypeError):
            return "unknown"


@contextmanager
def only_one(storage: Storage, ref: ArtifactRef) -> Iterator[None]:
    """Hold the lease of an artifact, once whoever holds it has let go, died, or fallen silent."""
    holder = attempt_name()
    lease = _take(storage, ref, holder)
    ended = Event()
    renewing = Thread(
        target=carrying_on(_renew), args=(storage, ref, lease, holder, ended), daemon=True, name="gif-lease"
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
    """Whether a lease is still renewed, by this process's own clock: no two clocks are ever compared."""

    def __init__(self) -> None:
        self.seen: Lease | None = None
        self.since = self.last = self.told = 0.0

    def is_over(self, lease: Lease, ref: ArtifactRef) -> bool:
        """Whether its holder is dead, or was silent all the time while the store could be asked."""
        now = time.monotonic()
        if lease != self.seen or now - self.last > RENEW_SECONDS:
            self.seen, self.since = lease, now
        self.last = now
        if owner_state(lease.holder) == "dead" or now - self.since > STALE_SECONDS:
            logger.warning("%s was being made by %s, which is gone: taking over", ref, lease.holder)
            return True
        if not self.told or now - self.told > TELL_SECONDS:
            self.told = now
            logger.warning("%s is being made by another run, %s: waiting for it", ref, lease.holder)
        return False


def find_leases(storage: Storage, artifact: str = "") -> Iterator[Lease]:
    """All leases there are, or those of one artifact."""
    for file in storage.find(LEASES):
        named = NAME.fullmatch(file.path.rpartition("/")[2])
        if named and file.path.startswith(f"{LEASES}/{artifact.replace('/', '-')}"):
            with suppress(FileNotFoundError):
                yield Lease(file.path, int(named[1]), storage.read(file.path))


def _newest(storage: Storage, ref: ArtifactRef) -> Lease | None:
    found = find_leases(storage, f"{ref.stage}/{ref.key}")
    return max(found, key=lambda lease: lease.number, default=None)


def _renew(storage: Storage, ref: ArtifactRef, lease: Lease, holder: str, ended: Event) -> None:
    """Count on in the lease while the work goes on."""
    renewals = 0
    while not ended.wait(RENEW_SECONDS):
        renewals += 1
        try:
            newest = _newest(storage, ref)
            if newest is None or newest.holder != holder:
                logger.warning("%s was taken over by another run: both go on, and the first to end publishes", ref)
                return
            storage.replace(lease.path, _content(holder, renewals))
        except OSError as error:
            logger.warning("the lease of %s could not be renewed: %s", ref, error)


def _release(storage: Storage, ref: ArtifactRef, lease: Lease, holder: str) -> None:
    """Remove it, and those of the dead before it."""
    try:
        for found in list(find_leases(storage, f"{ref.stage}/{ref.key}")):
            if found.number < lease.number or found.holder == holder:
                storage.remove(found.path)
    except StoreError as error:
        logger.warning("%s could not be removed, and ends by itself: %s", lease.path, error)


def _content(holder: str, renewals: int) -> bytes:
    return json.dumps({"holder": holder, "renewals": renewals}).encode()
