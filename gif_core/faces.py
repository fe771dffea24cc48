"""Faces in Arrow IPC shards: written once, then read by memory map in any order."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

IMAGE_SIZE = 112

SCHEMA = pa.schema(
    [
        pa.field("identity_id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("image", pa.binary(), nullable=False),
    ]
)


def decode(content: bytes | memoryview, size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """An encoded image as RGB, `size` × `size`; ValueError when it cannot be decoded."""
    pixels = np.frombuffer(content, np.uint8)
    try:
        image = cv2.imdecode(pixels, cv2.IMREAD_COLOR) if pixels.size else None
    except cv2.error as error:
        raise ValueError(f"OpenCV refuses it: {error.err or error}") from None
    if image is None:
        raise ValueError("not an image that can be decoded")
    if image.shape[:2] != (size, size):
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8)


@dataclass
class ShardWriter:
    """Appends faces to `<prefix>-00000.arrow`, …, each one record batch of about `shard_bytes`."""

    folder: Path
    prefix: str
    shard_bytes: int
    identity_ids: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    pending: int = 0
    shards: int = 0

    def add(self, identity_id: int, name: str, image: bytes) -> None:
        """Take one face; a full shard goes to disk."""
        self.identity_ids.append(identity_id)
        self.names.append(name)
        self.images.append(image)
        self.pending += len(image)
        if self.pending >= self.shard_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is pending, if anything."""
        if not self.images:
            return
        columns = [
            pa.array(self.identity_ids, pa.int64()),
            pa.array(self.names),
            pa.array(self.images, pa.binary()),
        ]
        batch = pa.record_batch(columns, schema=SCHEMA)
        path = self.folder / f"{self.prefix}-{self.shards:05d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_batch(batch)
        self.identity_ids, self.names, self.images, self.pending = [], [], [], 0
        self.shards += 1


class Faces:
    """All faces of some shards, by row number. Rows of one identity are neighbours."""

    def __init__(self, shards: Sequence[Path], *, workers: int = 1) -> None:
        """Map the shards into memory; nothing is read until it is asked for."""
        self.batches = [pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0) for path in shards]
        self.starts = np.cumsum([0] + [batch.num_rows for batch in self.batches])
        columns = [batch.column("identity_id").to_numpy() for batch in self.batches]
        self.labels_N: NDArray[np.int64] = np.concatenate(columns) if columns else np.empty(0, np.int64)
        self.workers = workers

    def __len__(self) -> int:
        """Number of faces."""
        return int(self.starts[-1])

    def content(self, row: int) -> memoryview:
        """The image file's bytes, without a copy."""
        shard = int(np.searchsorted(self.starts, row, side="right")) - 1
        value = self.batches[shard].column("image")[row - int(self.starts[shard])]
        return memoryview(value.as_buffer())

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Decoded faces, RGB [B, 112, 112, 3], in the order asked for."""
        images = np.empty((len(indices), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)

        def fill(position: int) -> None:
            images[position] = decode(self.content(int(indices[position])))

        if self.workers == 1 or len(indices) < 2:
            for position in range(len(indices)):
                fill(position)
        else:
            with ThreadPoolExecutor(self.workers) as pool:
                list(pool.map(fill, range(len(indices))))
        return images
