"""Faces in memory-mapped Arrow shards, read and decoded in any order."""

# Shapes: N faces in total, B faces of a batch, H height, W width, C channels.

import mmap
import os
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gif_core.artifacts import Artifact

IMAGE_SIZE: Final = 112
LOAD_CHUNK: Final = 64
"""Images per task of a thread: a compromise between balance and overhead."""


def decode(content: bytes | memoryview, size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """Decode an image file to RGB, `size` × `size`; ValueError if it cannot be decoded."""
    return decode_array(np.frombuffer(content, np.uint8), size)


def decode_array(encoded: NDArray[np.uint8], size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """Like `decode`, for bytes in an array."""
    return fit(decode_whole(encoded), size)


def fit(image_HWC: NDArray[np.uint8], size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """Resize an image to `size` × `size`, unless it has that size."""
    if image_HWC.shape[:2] == (size, size):
        return image_HWC
    return np.asarray(cv2.resize(image_HWC, (size, size), interpolation=cv2.INTER_AREA), np.uint8)


def decode_whole(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decode an image file to RGB in its own size; ValueError if it cannot be decoded."""
    try:
        image: Any = cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB) if len(encoded) else None
    except cv2.error as error:
        raise ValueError(f"OpenCV refuses it: {error.err or error}") from None
    if image is None:
        raise ValueError("not an image that can be decoded")
    return image  # type: ignore[no-any-return]


class MappedShard:
    """One memory-mapped shard; the system reads pages on first access."""

    def __init__(self, path: Path) -> None:
        """Map the file."""
        with path.open("rb") as file:
            self.pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.whole: Any = pa.py_buffer(self.pages)
        self.table: Any = pa.ipc.open_file(self.whole)

    def batches(self) -> list["MappedImages"]:
        """The images of each record batch."""
        return [MappedImages(self, number) for number in range(self.table.num_record_batches)]


class MappedImages:
    """The images of one record batch, located in the mapped file. Other columns are read on demand."""

    __slots__ = ("encoded", "number", "offsets", "origin", "shard")

    def __init__(self, shard: MappedShard, number: int) -> None:
        """Locate the images in the shard."""
        _, offsets, encoded = shard.table.get_batch(number).column("image").buffers()
        self.shard, self.number = shard, number
        self.offsets = memoryview(offsets).cast("i")
        self.encoded: NDArray[np.uint8] = np.frombuffer(encoded, np.uint8)
        self.origin: int = encoded.address - shard.whole.address

    def __len__(self) -> int:
        """Number of images."""
        return len(self.offsets) - 1

    def piece(self, place: int) -> NDArray[np.uint8]:
        """The bytes of one image."""
        return self.encoded[self.offsets[place] : self.offsets[place + 1]]

    def column(self, name: str) -> Any:
        """Another column of the batch."""
        return self.shard.table.get_batch(self.number).column(name)

    def advise(self, advice: int, begin: int, end: int) -> None:
        """Advise the kernel how a range of the images will be read (madvise)."""
        start = (self.origin + begin) // mmap.PAGESIZE * mmap.PAGESIZE
        self.shard.pages.madvise(advice, start, self.origin + end - start)


class Faces:
    """The faces of several shards, by row number. Rows of one identity are adjacent, unless its source has grown."""

    def __init__(self, shards: Sequence[Path], *, workers: int = 1, memory: int | None = None) -> None:
        """Map the shards without reading images. `memory`: bytes of physical memory, for tests."""
        self.paths = list(shards)
        self.workers = workers
        self.batches = [batch for path in shards for batch in MappedShard(path).batches()]
        self.starts: list[int] = np.cumsum([0] + [len(batch) for batch in self.batches]).tolist()
        self.fits = 2 * sum(len(batch.encoded) for batch in self.batches) < (memory or _physical_memory())
        if not self.fits:
            self._stop_reading_ahead()

    @cached_property
    def labels_N(self) -> NDArray[np.int64]:  # noqa: N802
        """Identity of every face."""
        labels = [batch.column("identity_id").to_numpy() for batch in self.batches]
        return np.concatenate(labels) if labels else np.empty(0, np.int64)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every decoded face."""
        return IMAGE_SIZE, IMAGE_SIZE, 3

    def __len__(self) -> int:
        """Number of faces."""
        return self.starts[-1]

    def content(self, row: int) -> memoryview:
        """The bytes of the image file, without a copy."""
        batch, place = self._locate(row)
        return batch.piece(place).data

    def name(self, row: int) -> str:
        """Name of the image in its source."""
        batch, place = self._locate(row)
        name: str = batch.column("name")[place].as_py()
        return name

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Decode faces to RGB [B, 112, 112, 3], in the order of `indices`."""
        images_BHWC = np.empty((len(indices), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
        parts = [slice(start, start + LOAD_CHUNK) for start in range(0, len(indices), LOAD_CHUNK)]
        if self.workers == 1 or len(parts) == 1:
            self.fill(images_BHWC, indices)
        else:
            list(self._threads.map(lambda part: self.fill(images_BHWC[part], indices[part]), parts))
        return images_BHWC

    def fill(
        self, images_BHWC: NDArray[np.uint8], indices: NDArray[np.int64], flips: NDArray[np.bool_] | None = None
    ) -> None:
        """Decode faces into a batch in the caller's thread; `flips` mirrors some of them."""
        rows = indices.tolist()
        if not self.fits:
            self._announce(rows)
        mirrored = [False] * len(rows) if flips is None else flips.tolist()
        for image_HWC, row, flip in zip(images_BHWC, rows, mirrored, strict=True):
            decoded_HWC = self._decode(row)
            if flip:
                cv2.flip(decoded_HWC, 1, image_HWC)
            else:
                image_HWC[:] = decoded_HWC

    def _decode(self, row: int) -> NDArray[np.uint8]:
        batch, place = self._locate(row)
        try:
            return decode_array(batch.piece(place))
        except ValueError as error:
            raise ValueError(f"face {row} ({self.name(row)}): {error}") from None

    def _locate(self, row: int) -> tuple[MappedImages, int]:
        number = bisect_right(self.starts, row) - 1
        if not 0 <= number < len(self.batches):
            raise IndexError(f"there is no face {row} among {len(self)}")
        return self.batches[number], row - self.starts[number]

    def _stop_reading_ahead(self) -> None:
        """Disable the kernel's read-ahead (MADV_RANDOM): in random order it reads pages that memory cannot keep."""
        for batch in self.batches:
            batch.advise(mmap.MADV_RANDOM, 0, len(batch.encoded))

    def _announce(self, rows: list[int]) -> None:
        """Ask the kernel to read all these images now (MADV_WILLNEED) instead of page by page during decoding."""
        for row in rows:
            batch, place = self._locate(row)
            batch.advise(mmap.MADV_WILLNEED, batch.offsets[place], batch.offsets[place + 1])

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Decoding threads; OpenCV's own threads are switched off in them, since they would compete."""
        return ThreadPoolExecutor(
            self.workers, thread_name_prefix="gif-faces", initializer=cv2.setNumThreads, initargs=(1,)
        )


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def open_faces(faces: Artifact, split: str, workers: int) -> Faces:
    """The faces of one split (`identities` or `held_out`) of an ingestion artifact."""
    return Faces([faces.path(name) for name in faces.names(f"{split}-")], workers=workers)


class Images(Protocol):
    """Aligned face images that can be loaded in any order."""

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]; called from a background thread."""
        ...
