"""A folder with one sub-folder of images per identity."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gif_core.writers.base import Crowd, Face, check_count, image_ending

LONGEST_NAME: Final = 200
"""Bytes; file systems take 255, and an identity id may follow."""
OUTER_DOT: Final = re.compile(r"^\.|\.$")


def write_folder(faces: Iterable[Face], crowd: Crowd, folder: Path) -> Iterator[int]:
    """Write `<label>/<number>.<ending>`, with numbers from 000000 for each identity."""
    names = folder_names(crowd.labels)
    counts = [0] * len(names)
    for written, face in enumerate(faces, start=1):
        person, number = folder / names[face.identity_id], counts[face.identity_id]
        if number == 0:
            person.mkdir()
        (person / f"{number:06d}.{image_ending(face)}").write_bytes(face.image)
        counts[face.identity_id] += 1
        yield written
    check_count(sum(counts), crowd)


def folder_names(labels: Sequence[str]) -> list[str]:
    """One name for each identity: its label, percent-encoded, so that it is a file name on every system.

    `%-` and the identity id are appended where that is no name (no label, or one that is too long) or the name
    of somebody else (the same label, or the same but for upper and lower case): so no two identities share a folder.
    """
    plain = [OUTER_DOT.sub("%2E", quote(label, safe="")) for label in labels]
    uses = Counter(name.lower() for name in plain)
    return [
        name if 0 < len(name) <= LONGEST_NAME and uses[name.lower()] == 1 else f"{name[:LONGEST_NAME]}%-{identity_id}"
        for identity_id, name in enumerate(plain)
    ]
