"""Verification files as insightface has them, `.bin`: a pickle of (images, whether each pair is of one person)."""

import pickle
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gif_core.writers.base import Crowd, Face, check_count

PAIR_FILE: Final = "pairs.bin"
PROTOCOL: Final = pickle.PROTO + bytes([3])
"""The first one that has bytes."""


def write_pair_file(faces: Iterable[Face], crowd: Crowd, folder: Path) -> Iterator[int]:
    """Write `pairs.bin`; pair i is the faces 2i and 2i + 1, of one person when their identities are the same.

    The pickle is written opcode by opcode: `pickle.dump` would need all images at once.
    """
    if crowd.num_faces % 2:
        raise ValueError(f"{crowd.num_faces} faces are no pairs")
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
        check_count(written, crowd)
        file.write(pickle.EMPTY_LIST + same + pickle.TUPLE2 + pickle.STOP)
