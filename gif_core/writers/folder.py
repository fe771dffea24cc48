"""Writing a folder with one sub-folder of images per identity."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gif_core.writers.base import ExportInfo, Face, check_count, image_ending

LONGEST_NAME: Final = 200
"""Bytes. File systems allow 255, and an identity id may be appended."""
OUTER_DOT: Final = re.compile(r"^\.|\.$")


def write_folder(faces: Iterable[Face], info: ExportInfo, folder: Path) -> Iterator[int]:
    """Write `<label>/<number>.<ending>`, with numbers from 000000 per identity."""
    names = folder_names(info.labels)
    counts = [0] * len(names)
    for written, face in enumerate(faces, start=1):
        person, number = folder / names[face.identity_id], counts[face.identity_id]
        if number == 0:
            person.mkdir()
        (person / f"{number:06d}.{image_ending(face)}").write_bytes(face.image)
        counts[face.identity_id] += 1
        yield written
    check_count(sum(counts), info)


def folder_names(labels: Sequence[str]) -> list[str]:
    """One name per identity: its label, percent-encoded, so that it is a valid file name on every system.

    `%-` and the identity id are appended to an empty or overlong label, and to a label that another identity has too
    (ignoring case), so that no two identities share a folder.
    """
    plain = [OUTER_DOT.sub("%2E", quote(label, safe="")) for label in labels]
    uses = Counter(name.lower() for name in plain)
    return [
        name if 0 < len(name) <= LONGEST_NAME and uses[name.lower()] == 1 else f"{name[:LONGEST_NAME]}%-{identity_id}"
        for identity_id, name in enumerate(plain)
    ]
