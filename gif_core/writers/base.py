"""What every writer of faces takes and gives."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

BEGINNINGS: Final = {b"\xff\xd8\xff": "jpg", b"\x89PNG\r\n\x1a\n": "png", b"BM": "bmp"}


class Face(NamedTuple):
    """One image of a person: the file's bytes, which no writer changes."""

    identity_id: int
    image: bytes | memoryview


@dataclass(frozen=True)
class Crowd:
    """Who is written: the label of identity 0, 1, …, and how many faces there are in all."""

    labels: Sequence[str]
    num_faces: int


class Writer(Protocol):
    """Writes faces into an empty folder, holding one at a time."""

    def __call__(self, faces: Iterable[Face], crowd: Crowd, folder: Path, /) -> Iterator[int]:
        """Yield the number of faces written after each one; all is on disk when the iterator ends."""
        ...


def image_ending(face: Face) -> str:
    """`jpg`, `png`, `bmp` or `webp`, by the first bytes of the image."""
    start = bytes(face.image[:12])
    for beginning, ending in BEGINNINGS.items():
        if start.startswith(beginning):
            return ending
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "webp"
    raise ValueError(
        f"an image of identity {face.identity_id} begins with {start.hex(' ')}, which is no JPEG, PNG, BMP or WebP"
    )


def check_count(written: int, crowd: Crowd) -> None:
    """Refuse to finish when more or fewer faces came than were announced."""
    if written != crowd.num_faces:
        raise ValueError(f"{crowd.num_faces} faces were announced and {written} came")
