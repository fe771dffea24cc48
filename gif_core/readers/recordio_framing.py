"""Records of MXNet RecordIO files: finding them, their headers, split records, and damage.

A record is `magic, cflag and length, data, padding to 4`. Data that contains the magic at a multiple of four is split
there into parts (cflag 1, 2, 3). A face's data is `flag, label, id, id2`, then `flag` more labels, then the image file.
"""

# Shapes: K records of one file, H headers in a window.

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gif_core.images import LARGEST_IMAGE
from gif_core.readers.files import Blob, Window

MAGIC: Final = 0xCED7230A
MAGIC_BYTES: Final = struct.pack("<I", MAGIC)
WHOLE, FIRST, MIDDLE, LAST = range(4)
LENGTH: Final = (1 << 29) - 1
"""Bits of the length; those above are the cflag."""
HEADER: Final = struct.Struct("<IIIf")
"""Magic, cflag and length, and the first two fields of the data: flag and label."""
DATA: Final = 24
"""Bytes of flag, label, id and id2."""
AHEAD: Final = 16
"""The first search for regular records covers this many times the next record; later ones twice what was found."""


@dataclass(frozen=True)
class Records:
    """Records found by the scan; each extends from its first header to the end of its data."""

    start_K: NDArray[np.int64]
    size_K: NDArray[np.int32]
    flag_K: NDArray[np.int32]
    label_K: NDArray[np.float32]
    split_K: NDArray[np.bool_]

    @property
    def bare_K(self) -> NDArray[np.bool_]:  # noqa: N802
        """Whether each record has several labels and no image."""
        return np.asarray((self.flag_K >= 2) & (self.size_K == 8 + DATA + 4 * self.flag_K), bool)

    @property
    def end(self) -> int:
        """Where the next record may begin."""
        return _aligned(int(self.start_K[-1] + self.size_K[-1]))

    def where(self, chosen_K: NDArray[np.bool_]) -> "Records":
        """The chosen records."""
        return Records(*(column_K[chosen_K] for column_K in vars(self).values()))


class Damage(NamedTuple):
    """A range of a file in which no record was found."""

    start: int
    end: int
    reason: str


class BrokenRecordError(ValueError):
    """There is no valid record at some position of the file; the next one may start at `resume`."""

    def __init__(self, reason: str, resume: int) -> None:
        super().__init__(reason)
        self.resume = resume


def scan_records(blob: Blob, start: int = 0, stop: int | None = None) -> Iterator[Records | Damage]:
    """Records from `start` on in order, in groups of adjacent regular records, and damaged ranges, until `stop`.

    After damage the scan resumes at the next magic. It is linear in the file's size: parts of a split record that were
    followed are not scanned again.
    """
    window, position, reach = RecordWindow(blob), start, 0
    damage: Damage | None = None
    while position < (blob.size if stop is None else stop):
        try:
            records = _regular_records(window, position, reach) or _record_at(window, position)
        except BrokenRecordError as error:
            start, reason = damage[::2] if damage else (position, str(error))
            position = window.next_header(error.resume)
            damage = Damage(start, position, reason)
            continue
        if damage:
            yield damage
            damage = None
        yield records
        position, reach = records.end, 2 * (records.end - position)
    if damage:
        yield damage


class RecordWindow(Window):
    """A window that locates in one pass the headers at which a record may begin.

    A file of magics alone has a header at every word: judging them one by one takes minutes.
    """

    def __init__(self, blob: Blob) -> None:
        """Nothing is read yet."""
        super().__init__(blob)
        self.located = (0, 0)
        self.header_H = np.empty(0, np.int64)
        """Positions in the file of the headers in the window, sorted."""

    def next_header(self, position: int) -> int:
        """The next header from `position` on that `_record_at` may accept, or the end of the file."""
        while position < self.blob.size:
            self.at(position, 4)
            self._locate()
            place = int(np.searchsorted(self.header_H, position))
            if place < len(self.header_H):
                return int(self.header_H[place])
            position = max(position + 4, (self.start + len(self.content)) & ~3)
        return self.blob.size

    def _locate(self) -> None:
        if self.located == (self.start, len(self.content)):
            return
        self.located = (self.start, len(self.content))
        first = -self.start % 4
        words = np.frombuffer(self.content, "<u4", max(len(self.content) - first, 0) // 4, first)
        place_H = np.flatnonzero(words == MAGIC)
        words = np.append(words, np.array([FIRST << 29, 0], "<u4"))  # a header that the window cuts off may begin one
        position_H = self.start + first + 4 * place_H
        self.header_H = position_H[self._may_begin(words[place_H + 1], words[place_H + 2], position_H)]

    def _may_begin(
        self, word_H: NDArray[np.uint32], flag_H: NDArray[np.uint32], position_H: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether each is the header of a first part, or of a whole record whose length and labels fit."""
        length_H = (word_H & LENGTH).astype(np.int64)
        fits_H = (length_H >= DATA) & (length_H <= np.minimum(LARGEST_IMAGE, self.blob.size - position_H - 8))
        labels_H = (DATA + 4 * flag_H.astype(np.int64) <= length_H) | (position_H + 12 > self.start + len(self.content))
        kind_H = word_H >> 29
        return np.asarray((kind_H == FIRST) | ((kind_H == WHOLE) & fits_H & labels_H), bool)


def _regular_records(window: Window, position: int, reach: int) -> Records | None:
    """The unsplit records from here on, each directly followed by another one within `reach` bytes."""
    begin = window.at(position, HEADER.size)
    length = int.from_bytes(window.content[begin + 4 : begin + 8], "little")
    size = _aligned(8 + length)
    if length < DATA or window.content[begin + size : begin + size + 4] != MAGIC_BYTES:
        return None
    reach = min(max(reach, AHEAD * size), len(window.content) - begin)
    words = np.frombuffer(window.content, "<u4", reach // 4, begin)
    place_K = np.flatnonzero(words == MAGIC)
    place_K = place_K[place_K < len(words) - DATA // 4 - 3]
    length_K, flag_K = words[place_K + 1].astype(np.int64), words[place_K + 2].astype(np.int64)
    regular_K = length_K >= DATA + 4 * flag_K
    regular_K[:-1] &= place_K[:-1] + 2 + (length_K[:-1] + 3) // 4 == place_K[1:]
    regular_K[-1:] = False
    regular_K[:1] &= place_K[:1] == 0
    count = int(np.argmin(regular_K)) if len(regular_K) else 0
    if count == 0:
        return None
    place_K, flag_K = place_K[:count], flag_K[:count]
    label_K = words.view("<f4")[np.where(flag_K > 0, place_K + 2 + DATA // 4, place_K + 3)]
    return make_records(position + 4 * place_K, 8 + length_K[:count], flag_K, label_K)


def join_parts(content: bytes) -> bytes:
    """The data of a split record: its parts joined by the magic."""
    parts, position = [], 0
    while position + 8 <= len(content):
        length = int.from_bytes(content[position + 4 : position + 8], "little") & LENGTH
        parts.append(content[position + 8 : position + 8 + length])
        position += _aligned(8 + length)
    return MAGIC_BYTES.join(parts)


def _record_at(window: Window, position: int) -> Records:
    begin, resume = window.at(position, HEADER.size), position + 4
    if begin + 8 > len(window.content):
        raise BrokenRecordError("truncated: the file ends within a record's header", resume)
    magic, word = struct.unpack_from("<II", window.content, begin)
    if magic != MAGIC:
        raise BrokenRecordError("damaged: no record begins here", resume)
    kind, length = word >> 29, word & LENGTH
    left = window.blob.size - position - 8
    if length > left:
        raise BrokenRecordError(f"truncated: a record of {length} bytes with {left} left in the file", resume)
    if kind == FIRST:
        return _split_record_at(window, position, position + 8 + length)
    if kind != WHOLE:
        raise BrokenRecordError("damaged: a part of a record without its beginning", resume)
    if length > LARGEST_IMAGE:
        raise BrokenRecordError(f"too large: a record of {length} bytes", resume)
    flag, label = _flag_and_label(window.peek(position + 8, DATA + 4), length, resume)
    _check_length(window, position, position + 8 + length)
    return make_records(position, 8 + length, flag, label)


def _check_length(window: Window, position: int, end: int) -> None:
    """A record that no other follows may have a wrong length: then it contains the magic of the next one."""
    if window.peek(_aligned(end), 4) in (MAGIC_BYTES, b""):
        return
    inside = _next_magic(window, position + 4)
    if inside < end:
        raise BrokenRecordError("damaged: another record begins within it", inside)


def _split_record_at(window: Window, position: int, end: int) -> Records:
    """Follow the parts to the last one; the label may be in any of them."""
    kind, resume = FIRST, position + 4
    while kind != LAST:
        begin = _aligned(end)
        header = window.peek(begin, 8)
        magic, word = struct.unpack("<II", header) if len(header) == 8 else (0, 0)
        kind, end = word >> 29, begin + 8 + (word & LENGTH)
        if magic != MAGIC or kind not in (MIDDLE, LAST) or end > window.blob.size:
            raise BrokenRecordError("damaged: a split record without its end", resume)
        resume = begin + 4
        if end - position > LARGEST_IMAGE:
            raise BrokenRecordError(f"too large: a record of more than {LARGEST_IMAGE} bytes", resume)
    data = join_parts(window.read(position, end - position))
    flag, label = _flag_and_label(data, len(data), resume)
    return make_records(position, end - position, flag, label, split=True)


def _flag_and_label(data: bytes, length: int, resume: int) -> tuple[int, float]:
    """The number of further labels, and the label, from the beginning of a record's data."""
    if length < DATA:
        raise BrokenRecordError(f"truncated: {length} bytes are too few for a label and an image", resume)
    flag, label = struct.unpack_from("<If", data)
    if DATA + 4 * flag > length:
        raise BrokenRecordError(f"damaged: {flag} labels do not fit into {length} bytes", resume)
    return flag, struct.unpack_from("<f", data, DATA)[0] if flag else label


def make_records(
    start: ArrayLike = (), size: ArrayLike = (), flag: ArrayLike = (), label: ArrayLike = (), *, split: bool = False
) -> Records:
    """Records of single values, or of columns."""
    start_K, size_K = np.atleast_1d(np.asarray(start, np.int64)), np.atleast_1d(np.asarray(size, np.int32))
    flag_K, label_K = np.atleast_1d(np.asarray(flag, np.int32)), np.atleast_1d(np.asarray(label, np.float32))
    return Records(start_K, size_K, flag_K, label_K, np.full(len(start_K), split))


def _next_magic(window: Window, position: int) -> int:
    """The next multiple of four at which there is the magic, or the end of the file."""
    while position < window.blob.size:
        begin = window.at(position, 4)
        found = window.content.find(MAGIC_BYTES, begin)
        while found >= 0 and (window.start + found) % 4:
            found = window.content.find(MAGIC_BYTES, found + 1)
        if found >= 0:
            return window.start + found
        position = max(position + 4, (window.start + len(window.content)) & ~3)
    return window.blob.size


def _aligned(position: int) -> int:
    return (position + 3) & ~3
