"""The interface of writers: Face, ExportInfo and Writer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

BEGINNINGS: Final = {b"\xff\xd8\xff": "jpg", b"\x89PNG\r\n\x1a\n": "png", b"BM": "bmp"}


class Face(NamedTuple):
    """One image of an identity: the bytes of the image file, which writers do not change."""

    identity_id: int
    image: bytes | memoryview


@dataclass(frozen=True)
class ExportInfo:
    """What an export contains: the label of identity 0, 1, …, and the total number of faces."""

    labels: Sequence[str]
    num_faces: int


class Writer(Protocol):
    """Writes faces into an empty folder, with one face in memory at a time."""

    def __call__(self, faces: Iterable[Face], info: ExportInfo, folder: Path, /) -> Iterator[int]:
        """Yield the number of faces written after each one; all files are complete when the iterator ends."""
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


def check_count(written: int, info: ExportInfo) -> None:
    """Raise if the number of written faces is not the announced one."""
    if written != info.num_faces:
        raise ValueError(f"{info.num_faces} faces were announced, but {written} were given")
