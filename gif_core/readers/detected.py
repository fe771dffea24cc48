"""Photographs of another reader as aligned faces: the face of each is found, aligned and kept in a log of results."""

# Shapes: R records of a source.

import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from gif_core.detection import DETECTOR_DIGEST, NoFaceError, find_detector, find_faces, only_face
from gif_core.images import BadImageError, ImageLimits, check_image, decode_bounded
from gif_core.readers.base import Content, Reader, ReaderAround

VERSION: Final = 1
"""Raised when the same photographs would give other faces."""
AT_ONCE: Final = 32
"""Photographs per worker that are in memory at once."""
QUALITY: Final = 95
"""JPEG quality of aligned faces."""
FRAME: Final = struct.Struct("<qIBI")
"""Before every result: record, bytes, whether it is a reason, checksum."""


class DetectingReader(ReaderAround):
    """Reads the faces of photographs; the log makes a killed ingestion go on where it stopped."""

    def __init__(self, reader: Reader, limits: ImageLimits) -> None:
        """Wrap a reader of photographs, which is read inside `detecting`; `limits` are those of photographs."""
        super().__init__(reader)
        self._limits = limits
        self.threads, self.in_any_order = reader.threads, reader.in_any_order

    @contextmanager
    def detecting(self, log: Path, workers: int) -> Iterator[None]:
        """Detect with so many threads and keep results in a file; DetectorMissingError without a detector."""
        find_detector()
        self._workers = workers
        name, prepare = "gif-detect", partial(cv2.setNumThreads, 1)
        with (
            ResultLog(log) as self._log,
            ThreadPoolExecutor(workers, thread_name_prefix=name, initializer=prepare) as self._pool,
        ):
            yield

    def describe(self) -> dict[str, Any]:
        """The description of the source, and the detector."""
        return super().describe() | {"detect": f"{DETECTOR_DIGEST}-{VERSION}"}

    def read(self, records: NDArray[np.int64]) -> Iterator[Content]:
        """The aligned faces of these photographs, or why there is none."""
        for start in range(0, len(records), AT_ONCE * self._workers):
            some = records[start : start + AT_ONCE * self._workers].tolist()
            self._detect([record for record in some if record not in self._log])
            yield from map(self._log.read, some)

    def _detect(self, records: list[int]) -> None:
        contents: Iterable[Content] = self.reader.read(np.array(records, np.int64)) if records else ()
        found = self._pool.map(partial(align_photograph, limits=self._limits), contents)
        for record, result in zip(records, found, strict=True):
            self._log.add(record, result)


def align_photograph(content: Content, limits: ImageLimits) -> Content:
    """The only large face of a photograph as a JPEG file of 112×112 pixels, or why it cannot be used."""
    try:
        if isinstance(content, BadImageError):
            raise content
        check_image(content, limits)
        face = only_face(find_faces(decode_bounded(content, limits), "detect"))
    except NoFaceError as error:
        return BadImageError(f"no face: {error}")
    except ValueError as error:
        return error if isinstance(error, BadImageError) else BadImageError(str(error))
    bgr_HWC = cv2.cvtColor(face.pixels_HWC, cv2.COLOR_RGB2BGR)
    encoded: bytes = cv2.imencode(".jpg", bgr_HWC, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
    return encoded


class ResultLog:
    """Results by record, appended to one file; what a killed process had written is found again."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and cut off a result that was not written completely."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        self._lock = threading.Lock()
        self._places: dict[int, tuple[int, int, bool]] = {}
        self._end = self._scan()
        self._file.truncate(self._end)

    def __enter__(self) -> Self:
        """The file is closed at the end of the context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def __contains__(self, record: int) -> bool:
        """Whether there is a result."""
        return record in self._places

    def add(self, record: int, result: Content) -> None:
        """Append a result; safe from several threads."""
        is_reason = isinstance(result, BadImageError)
        content = str(result).encode() if isinstance(result, BadImageError) else result
        frame = FRAME.pack(record, len(content), is_reason, zlib.crc32(content)) + content
        with self._lock:
            self._file.write(frame)
            self._places[record] = (self._end + FRAME.size, len(content), is_reason)
            self._end += len(frame)

    def read(self, record: int) -> Content:
        """The result of a record."""
        start, length, is_reason = self._places[record]
        content = os.pread(self._file.fileno(), length, start)
        return BadImageError(content.decode()) if is_reason else content

    def _scan(self) -> int:
        """Find all results; returns the end of the last complete one."""
        size, place = os.fstat(self._file.fileno()).st_size, 0
        while place + FRAME.size <= size:
            frame = os.pread(self._file.fileno(), FRAME.size, place)
            record, length, is_reason, checksum = FRAME.unpack(frame)
            start = place + FRAME.size
            content = os.pread(self._file.fileno(), length, start)
            if len(content) < length or zlib.crc32(content) != checksum:
                break
            self._places[record] = (start, length, bool(is_reason))
            place = start + length
        return place
