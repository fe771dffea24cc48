"""Writing the faces of one split: assigning identity ids and filling shards."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from gif_core.ingestion.shards import FaceBatch, Image, Journal, Progress, ShardFile
from schemas.files import Split

BATCH_BYTES: Final = 4 * 2**20
WAITING: Final = 4
"""Batches that may wait to be written."""


class SplitWriter:
    """Takes the images of a split in order; a thread writes them in batches while others are read.

    Boundaries of batches and shards depend only on the images.
    """

    def __init__(
        self,
        folder: Path,
        name: Split,
        *,
        work: Path,
        records: NDArray[np.int64],
        ids: dict[int, int],
        first_shard: int,
        min_samples: int,
        shard_bytes: int,
    ) -> None:
        """Resume after the finished shards; `ids` are the identity ids that exist already."""
        self.name, self.records, self.ids = name, records, dict(ids)
        self.min_samples, self.shard_bytes = min_samples, shard_bytes
        self.journal = Journal(folder, work, name, first_shard)
        self.progress, self.since = self.journal.resume(), Progress()
        self.batch, self.shard_size = FaceBatch(), 0
        self.file: ShardFile | None = None
        self.person, self.waiting = -1, FaceBatch()
        self.disk = ThreadPoolExecutor(1, thread_name_prefix="gif-shard")
        self.writes: deque[Future[None]] = deque()
        self._restore_ids()

    @property
    def left(self) -> NDArray[np.int64]:
        """Records that are not processed yet."""
        return self.records[self.progress.position :]

    def take(self, person: int, names: list[str], images: Sequence[Image]) -> None:
        """Add the images of the next records, all of one identity; they wait until there are `min_samples` of them."""
        if person != self.person:
            self.person, self.waiting = person, FaceBatch()
        if person not in self.ids and self.progress.good[person] + len(images) < self.min_samples:
            self.waiting.add(-1, names, images)
            self._count(person, len(images))
            return
        identity_id = self._identity_id(person)
        self._add(identity_id, self.waiting.names, self.waiting.images)
        self.waiting = FaceBatch()
        while images:
            fitting = self._fitting(images)
            self._add(identity_id, names[:fitting], images[:fitting])
            self._count(person, fitting)
            names, images = names[fitting:], images[fitting:]
            self._cut()

    def refuse(self, record: int, reason: str) -> None:
        """Reject the next record."""
        self.progress.position += 1
        self.progress.bad.append((record, reason))
        self.since.bad.append((record, reason))

    def finish(self) -> None:
        """Write the remaining images."""
        if self.shard_size:
            self._write_batch()
            self._finish_shard()
        while self.writes:
            self.writes.popleft().result()

    def __enter__(self) -> Self:
        """The thread ends with the context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for pending writes and close the file."""
        self.disk.shutdown()
        if self.file:
            self.file.close()

    def _add(self, identity_id: int, names: list[str], images: Sequence[Image]) -> None:
        before = self.batch.size
        self.batch.add(identity_id, names, images)
        self.shard_size += self.batch.size - before

    def _fitting(self, images: Sequence[Image]) -> int:
        """Number of these images that fill the batch or the shard, or all of them."""
        room = min(BATCH_BYTES - self.batch.size, self.shard_bytes - self.shard_size)
        if sum(map(len, images)) < room:
            return len(images)
        ends = np.cumsum([len(image) for image in images])
        return min(int(np.searchsorted(ends, room)) + 1, len(images))

    def _count(self, person: int, images: int) -> None:
        self.progress.position += images
        self.progress.good[person] += images
        self.since.good[person] += images

    def _cut(self) -> None:
        """Write the batch and finish the shard if they are full."""
        full = self.shard_size >= self.shard_bytes
        if full or self.batch.size >= BATCH_BYTES:
            self._write_batch()
        if full:
            self._finish_shard()

    def _write_batch(self) -> None:
        if self.file is None:
            self.file = self.journal.open_shard(self.progress.shards)
        file, batch = self.file, self.batch
        self._submit(lambda: file.write(batch))
        self.batch = FaceBatch()

    def _finish_shard(self) -> None:
        file, number, since = self.file, self.progress.shards, self.since
        since.position = self.progress.position

        def finish() -> None:
            assert file is not None, "a shard that is finished was begun"
            file.finish()
            self.journal.enter(number, since)

        self._submit(finish)
        self.progress.shards += 1
        self.file, self.shard_size, self.since = None, 0, Progress()

    def _submit(self, work: Callable[[], None]) -> None:
        self.writes.append(self.disk.submit(work))
        if len(self.writes) > WAITING:
            self.writes.popleft().result()

    def _identity_id(self, person: int) -> int:
        return self.ids.setdefault(person, len(self.ids))

    def _restore_ids(self) -> None:
        """Assign ids to the identities in finished shards, in the order of their numbers."""
        for person in sorted(self.progress.good):
            if self.progress.good[person] >= self.min_samples:
                self._identity_id(person)
