"""Writing MXNet RecordIO in insightface's layout: `train.rec`, `train.idx` and `property`."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from gif_core.images import IMAGE_SIZE
from gif_core.writers.base import ExportInfo, Face, check_count

MAGIC: Final = struct.pack("<I", 0xCED7230A)
WHOLE, FIRST, MIDDLE, LAST = range(4)
"""Part of a record (cflag), stored in the three bits above the length."""
LENGTH_BITS: Final = 29
EXACT: Final = 2**24
"""Labels, and keys in the table of identities, are 32-bit floats: integers are exact up to here."""


def write_recordio(faces: Iterable[Face], info: ExportInfo, folder: Path, *, exact: int = EXACT) -> Iterator[int]:
    """Write faces, in ascending order of identity, under the keys 1, 2, …, followed by a table of identities.

    Record 0 holds the range of the table, whose records hold the range of keys of each identity. With more than 2^24
    records, beyond the precision of floats, both are omitted and keys start at 0, as im2rec does; insightface reads
    both layouts.
    """
    num_classes, table = len(info.labels), 1 + info.num_faces
    if num_classes > exact:
        raise ValueError(
            f"labels in RecordIO are exact for {exact:,} identities, not {num_classes:,}: choose another format"
        )
    with_table = table + num_classes <= exact
    counts = [0] * num_classes
    with (folder / "train.rec").open("wb") as rec, (folder / "train.idx").open("w", newline="\n") as idx:
        records = Records(rec, idx)
        if with_table:
            records.add_range(0, table, table + num_classes)
        for written, face in enumerate(_ascending(faces)):
            records.add_face(written + with_table, face)
            counts[face.identity_id] += 1
            yield written + 1
        check_count(sum(counts), info)
        if with_table:
            for key, (start, end) in enumerate(pairwise(accumulate(counts, initial=1)), start=table):
                records.add_range(key, start, end)
    (folder / "property").write_text(f"{num_classes},{IMAGE_SIZE},{IMAGE_SIZE}")


@dataclass
class Records:
    """Appends records to a file and their offsets to its index."""

    rec: BinaryIO
    idx: TextIO
    offset: int = 0

    def add_face(self, key: int, face: Face) -> None:
        """Add an image with its label."""
        self._add(key, struct.pack("<IfQQ", 0, face.identity_id, key, 0) + face.image)

    def add_range(self, key: int, start: int, end: int) -> None:
        """Add a record without an image whose two labels are a range of keys."""
        self._add(key, struct.pack("<IfQQff", 2, 0, key, 0, start, end))

    def _add(self, key: int, payload: bytes) -> None:
        if len(payload) >> LENGTH_BITS:
            raise ValueError(f"the record of key {key} exceeds the limit of {2**LENGTH_BITS:,} bytes")
        content = encode_record(payload)
        self.rec.write(content)
        self.idx.write(f"{key}\t{self.offset}\n")
        self.offset += len(content)


def encode_record(payload: bytes) -> bytes:
    """Frame one record. The payload is split, without the magic, where it contains the magic at a multiple of four."""
    parts = _split_at_magic(payload)
    kinds = [WHOLE] if len(parts) == 1 else [FIRST, *[MIDDLE] * (len(parts) - 2), LAST]
    framed = [
        MAGIC + struct.pack("<I", kind << LENGTH_BITS | len(part)) + part
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return b"".join(framed) + bytes(-len(payload) % 4)


def _split_at_magic(payload: bytes) -> list[bytes]:
    parts, start = [], 0
    found = payload.find(MAGIC)
    while found >= 0:
        if found % 4 == 0:
            parts.append(payload[start:found])
            start = found + 4
        found = payload.find(MAGIC, found + 4)
    return [*parts, payload[start:]]


def _ascending(faces: Iterable[Face]) -> Iterator[Face]:
    """Pass the faces on, checking that identities ascend."""
    last = 0
    for face in faces:
        if face.identity_id < last:
            raise ValueError(f"RecordIO needs identities in ascending order; {face.identity_id} comes after {last}")
        last = face.identity_id
        yield face
