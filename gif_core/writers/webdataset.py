"""Writing WebDataset: tar files of samples, each an image `<key>.jpg`, its class `<key>.cls` and `<key>.json`."""

import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

from gif_core.writers.base import ExportInfo, Face, check_count, image_ending

SHARD_BYTES: Final = 10**9
BLOCK: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * BLOCK)
"""Two empty blocks end an archive."""


def write_webdataset(
    faces: Iterable[Face], info: ExportInfo, folder: Path, *, shard_bytes: int = SHARD_BYTES
) -> Iterator[int]:
    """Write `faces-000000.tar`, …, none larger than `shard_bytes` unless a single sample is.

    Members have no owner and no time, so equal faces give equal bytes.
    """
    written = 0
    with closing(Shards(folder, shard_bytes)) as shards:
        for written, face in enumerate(faces, start=1):
            shards.add(_encode_sample(f"{written - 1:09d}", face, info.labels[face.identity_id]))
            yield written
    check_count(written, info)


class Shards:
    """Appends samples to an archive, and to the next one when it is full."""

    def __init__(self, folder: Path, shard_bytes: int) -> None:
        """The first archive is created with the first sample."""
        self.folder, self.shard_bytes = folder, shard_bytes
        self.count = 0
        self.tar: BinaryIO | None = None

    def add(self, sample: bytes) -> None:
        """Write a sample, in a new archive if the current one has no room for it and the end marker."""
        if self.tar is None or self.tar.tell() + len(sample) + len(END) > self.shard_bytes:
            self.close()
            self.tar = (self.folder / f"faces-{self.count:06d}.tar").open("wb")
            self.count += 1
        self.tar.write(sample)

    def close(self) -> None:
        """Finish the open archive, if there is one."""
        if self.tar is not None:
            with self.tar:
                self.tar.write(END)
            self.tar = None


def _encode_sample(key: str, face: Face, label: str) -> bytes:
    """The three members of a face, adjacent as readers expect."""
    about = {"label": label, "identity_id": face.identity_id}
    members = {
        image_ending(face): face.image,
        "cls": str(face.identity_id).encode(),
        "json": json.dumps(about, ensure_ascii=False).encode(),
    }
    return b"".join(_encode_member(f"{key}.{ending}", content) for ending, content in members.items())


def _encode_member(name: str, content: bytes | memoryview) -> bytes:
    """Header, content and padding; a `TarFile` would keep every member's header in memory."""
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return b"".join([header.tobuf(tarfile.USTAR_FORMAT), content, bytes(-len(content) % BLOCK)])
