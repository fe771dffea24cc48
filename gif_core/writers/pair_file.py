"""Writing insightface's verification files, `.bin`: a pickle of (images, whether each pair shows one identity)."""

import pickle
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gif_core.writers.base import ExportInfo, Face, check_count

PAIR_FILE: Final = "pairs.bin"
PROTOCOL: Final = pickle.PROTO + bytes([3])
"""Pickle protocol 3, the first with bytes."""


def write_pair_file(faces: Iterable[Face], info: ExportInfo, folder: Path) -> Iterator[int]:
    """Write `pairs.bin`; pair i consists of the faces 2i and 2i + 1, and is genuine if their identities are equal.

    The pickle is written opcode by opcode: `pickle.dump` would need all images in memory.
    """
    if info.num_faces % 2:
        raise ValueError(f"{info.num_faces} faces cannot form pairs: the number is odd")
    same, left, written = bytearray(), -1, 0
    with (folder / PAIR_FILE).open("wb") as file:
        file.write(PROTOCOL + pickle.EMPTY_LIST)
        for written, face in enumerate(faces, start=1):
            file.write(pickle.BINBYTES + struct.pack("<I", len(face.image)))
            file.write(face.image)
            file.write(pickle.APPEND)
            if written % 2 == 0:
                same += (pickle.NEWTRUE if face.identity_id == left else pickle.NEWFALSE) + pickle.APPEND
            left = face.identity_id
            yield written
        check_count(written, info)
        file.write(pickle.EMPTY_LIST + same + pickle.TUPLE2 + pickle.STOP)
