"""All records of a RecordIO file, found by several threads that each scan a piece of it."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import numpy as np

from gif_core.readers.files import Blob
from gif_core.readers.recordio_framing import Damage, Records, RecordWindow, make_records, scan_records

SMALLEST_PIECE: Final = 64 * 2**20
"""Bytes; less is not worth a thread."""
MOST_PIECES: Final = 4
"""Reading from memory or a disk gets no faster with more."""

Found = list[Records | Damage]


def find_records(blob: Blob) -> tuple[Records, list[Damage]]:
    """All records of a file, and its damaged ranges: what one scan from the beginning finds."""
    found = _scan(blob)
    records = [make_records(), *(some for some in found if isinstance(some, Records))]
    columns = zip(*(vars(some).values() for some in records), strict=True)
    return Records(*map(np.concatenate, columns)), [some for some in found if isinstance(some, Damage)]


def _scan(blob: Blob) -> Found:
    """Scan pieces at once. What begins with a header may be the middle of an image: such a piece is scanned again."""
    starts = _piece_starts(blob)
    with ThreadPoolExecutor(len(starts) - 1, thread_name_prefix="gif-scan") as threads:
        pieces = threads.map(lambda piece: list(scan_records(blob, *piece)), pairwise(starts))
        found: Found = []
        for (start, stop), piece in zip(pairwise(starts), pieces, strict=True):
            here = _end_of(found)
            _append(found, piece if here == start else list(scan_records(blob, here, stop)))
    return found


def _piece_starts(blob: Blob) -> list[int]:
    """Where pieces may begin, and the end of the file."""
    count = max(1, min(os.cpu_count() or 1, MOST_PIECES, blob.size // SMALLEST_PIECE))
    window = RecordWindow(blob)
    inner = {window.next_header(4 * (blob.size * number // (4 * count))) for number in range(1, count)}
    return [0, *sorted(inner - {0, blob.size}), blob.size]


def _end_of(found: Found) -> int:
    return found[-1].end if found else 0


def _append(found: Found, piece: Found) -> None:
    """Add what a piece holds; damage that goes on from the one before is the same damage."""
    if found and piece and isinstance(last := found[-1], Damage) and isinstance(first := piece[0], Damage):
        found[-1], piece = Damage(last.start, first.end, last.reason), piece[1:]
    found += piece
