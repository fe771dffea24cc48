"""Reading a landmarks file: lines of `label/image.jpg x1 y1 … x5 y5`, five points per image."""

import hashlib
from dataclasses import dataclass

import fsspec
import numpy as np
from numpy.typing import NDArray

from gif_core.images.source_files import IMAGE_ENDINGS, SourceFile


@dataclass(frozen=True)
class Landmarks:
    """Landmarks by image name, and the file they were read from."""

    points: dict[str, NDArray[np.float64]]
    file: SourceFile


def read_landmarks(address: str) -> Landmarks:
    """Read all lines; an eleventh number, a detector's score, is ignored."""
    fs, path = fsspec.url_to_fs(address)
    if not fs.isfile(path):
        raise FileNotFoundError(f"ingestion.sources: there is no landmarks file {address}")
    content: bytes = fs.cat_file(path)
    lines = content.decode("utf-8-sig", "replace").split("\n")
    points = dict(_read_line(address, number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return Landmarks(points, SourceFile(path.rpartition("/")[2], len(content), hashlib.sha256(content).hexdigest()))


def _read_line(address: str, number: int, line: str) -> tuple[str, NDArray[np.float64]]:
    """Name and points of one line; the name may contain blanks."""
    for count in (10, 11):
        name, *numbers = line.strip().rsplit(maxsplit=count)
        if name.lower().endswith(IMAGE_ENDINGS) and len(numbers) == count:
            try:
                return name, np.array(numbers[:10], np.float64).reshape(5, 2)
            except ValueError:
                break
    raise ValueError(f"{address}, line {number}: expected an image's name and ten numbers, found {line[:80]!r}")
