"""Arrow shards of faces, written batch by batch, and the journal that records finished shards."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

SCHEMA: Final = pa.schema(
    [
        pa.field("identity_id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("image", pa.binary(), nullable=False),
    ]
)


Image = bytes | memoryview
"""The bytes of an image file."""


@dataclass
class FaceBatch:
    """Faces that are written at once: few enough to stay in the processor's cache."""

    identity_ids: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    size: int = 0
    """Bytes of all images."""

    def add(self, identity_id: int, names: list[str], images: Sequence[Image]) -> None:
        """Add faces of one identity."""
        self.identity_ids += [identity_id] * len(names)
        self.names += names
        self.images += images
        self.size += sum(map(len, images))

    def to_arrow(self) -> pa.RecordBatch:
        """The faces as columns."""
        offsets = np.cumsum([0] + [len(image) for image in self.images], dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(self.images))]
        images = pa.Array.from_buffers(pa.binary(), len(self.images), buffers)
        ids, names = pa.array(self.identity_ids, pa.int64()), pa.array(self.names, pa.string())
        return pa.record_batch([ids, names, images], schema=SCHEMA)


class ShardFile:
    """An Arrow file that gets its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        """Create the file under a hidden name."""
        self.path, self.partial = path, path.with_name(f".{path.name}")
        self.sink = pa.OSFile(str(self.partial), "wb")
        self.writer = pa.ipc.new_file(self.sink, SCHEMA)

    def write(self, faces: FaceBatch) -> None:
        """Append faces as one record batch."""
        self.writer.write_batch(faces.to_arrow())

    def close(self) -> None:
        """Close the file; it keeps its hidden name."""
        self.writer.close()
        self.sink.close()

    def finish(self) -> None:
        """Close the file and give it its name."""
        self.close()
        self.partial.replace(self.path)


@dataclass
class Progress:
    """Progress of one split: the content of its shards, and the rejected records."""

    position: int = 0
    """Records processed."""
    shards: int = 0
    good: Counter[int] = field(default_factory=Counter)
    """Usable images per identity."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Rejected records with reasons."""


class Journal:
    """One small file per finished shard, written after it, from which a killed ingestion resumes."""

    def __init__(self, folder: Path, work: Path, split: str, first_shard: int) -> None:
        """Shards are in `folder`, entries in `work`; the first `first_shard` numbers belong to the base's shards."""
        self.folder, self.work, self.split, self.first_shard = folder, work, split, first_shard

    def resume(self) -> Progress:
        """The sum of all entries whose shards exist; a shard without an entry is removed and written again."""
        progress = Progress()
        while self._entry(progress.shards).is_file() and self._shard(progress.shards).is_file():
            done = json.loads(self._entry(progress.shards).read_bytes())
            progress.position = done["position"]
            progress.good.update({int(person): count for person, count in done["good"].items()})
            progress.bad += [(record, reason) for record, reason in done["bad"]]
            progress.shards += 1
        self._shard(progress.shards).unlink(missing_ok=True)
        return progress

    def open_shard(self, number: int) -> ShardFile:
        """Create a shard."""
        return ShardFile(self._shard(number))

    def enter(self, number: int, since: Progress) -> None:
        """Record a finished shard, with the progress since the previous one."""
        entry = self._entry(number)
        partial = entry.with_name(f".{entry.name}")
        partial.write_text(json.dumps({"position": since.position, "good": since.good, "bad": since.bad}))
        partial.replace(entry)

    def _shard(self, number: int) -> Path:
        return self.folder / f"{self.split}-{self.first_shard + number:05d}.arrow"

    def _entry(self, number: int) -> Path:
        return self.work / f"{self.split}-{self.first_shard + number:05d}.json"
