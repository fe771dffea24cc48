"""Files of a source on a local disk or any fsspec file system: finding them, fingerprints, and reading ranges."""

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gif_core.images import SourceFile
from gif_core.runtime import once_per_file, printable

EDGE = 64 * 1024
"""Bytes at both ends of a file that make up its digest."""
WINDOW = 4 * 2**20
"""Bytes that are read at a time when a file is scanned."""


class Blob:
    """A file that several threads read in ranges; it is open only during a read, since there may be thousands."""

    def __init__(self, fs: Any, path: str, name: str, size: int) -> None:
        """Does not open the file."""
        self.fs, self.path, self.name, self.size = fs, path, printable(name), size
        self.local = Path(path) if isinstance(fs, LocalFileSystem) else None

    @property
    def is_local(self) -> bool:
        """Whether the file is on a local disk."""
        return self.local is not None

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, fewer where the file ends."""
        start, end = min(max(start, 0), self.size), min(end, self.size)
        if end <= start:
            return b""
        content = self._fetch(start, end)
        if len(content) != end - start:
            raise OSError(f"{self.name}: {len(content)} of {end - start} bytes at {start}: the file has changed")
        return content

    def _fetch(self, start: int, end: int) -> bytes:
        if self.local is None:
            content: bytes = self.fs.cat_file(self.path, start=start, end=end)
            return content
        with self.local.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(end - start)

    def describe(self) -> SourceFile:
        """Name, size, and a digest of the first and last bytes."""
        if self.local:
            return SourceFile(self.name, self.size, _describe_local(self.local, self.size))
        edges = self.read(0, EDGE) + self.read(max(self.size - EDGE, EDGE), self.size)
        return SourceFile(self.name, self.size, _digest(edges))

    def beside(self, path: str) -> "Blob | None":
        """Another file in the same folder, if it exists."""
        if not self.fs.isfile(path):
            return None
        folder = self.name.rpartition("/")[0]
        name = path.rpartition("/")[2]
        return Blob(self.fs, path, f"{folder}/{name}" if folder else name, int(self.fs.size(path)))


@once_per_file
def _describe_local(path: Path, size: int) -> str:
    """The digest of both ends of a local file, which is opened once."""
    with path.open("rb") as file:
        edges = file.read(min(EDGE, size))
        file.seek(max(size - EDGE, EDGE))
        edges += file.read(max(size - file.tell(), 0))
    if len(edges) != min(size, 2 * EDGE):
        raise OSError(f"{path}: it has less than {size} bytes: the file has changed")
    return _digest(edges)


def _digest(edges: bytes) -> str:
    return hashlib.sha256(edges).hexdigest()[:32]


class BlobFile(io.RawIOBase):
    """A blob as a file object. A read never allocates more than the file has, whatever size is requested."""

    def __init__(self, blob: Blob) -> None:
        """Start at the beginning."""
        self.blob, self.position = blob, 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """Position of the next read."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.blob.size}[whence]
        return self.position

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, or all remaining ones."""
        end = self.blob.size if size is None or size < 0 else self.position + size
        content = self.blob.read(self.position, end)
        self.position += len(content)
        return content


class Window:
    """A sliding window over a blob, for scanning it in order."""

    def __init__(self, blob: Blob) -> None:
        """Nothing is read yet."""
        self.blob, self.start, self.content = blob, 0, b""

    def at(self, position: int, length: int) -> int:
        """Load at least `length` bytes from `position` on, if the file has them; returns their index in `content`."""
        if not self._has(position, length):
            self.start = position
            self.content = self.blob.read(position, position + max(length, WINDOW))
        return position - self.start

    def read(self, position: int, length: int) -> bytes:
        """The bytes from `position` on."""
        begin = self.at(position, length)
        return self.content[begin : begin + length]

    def peek(self, position: int, length: int) -> bytes:
        """The bytes themselves, without moving the view."""
        if self._has(position, length):
            return self.read(position, length)
        return self.blob.read(position, position + length)

    def _has(self, position: int, length: int) -> bool:
        end = min(position + length, self.blob.size)
        return self.start <= position <= end <= self.start + len(self.content)


def find_blobs(address: str, ending: str, what: str) -> list[Blob]:
    """The files of a source sorted by name: a single file, those in a folder, or those that match a pattern."""
    fs, root = fsspec.url_to_fs(address, use_listings_cache=False)
    base, found = _find(fs, root)
    if found is None:
        raise FileNotFoundError(f"ingestion.sources: there is no file or folder {address}")
    chosen = [path for path in sorted(found) if path.endswith(ending) and _is_file(fs, found[path])]
    if not chosen:
        raise FileNotFoundError(f"ingestion.sources: {address} holds no {what} (*{ending})")
    return [Blob(fs, path, path.removeprefix(f"{base}/"), int(found[path]["size"])) for path in chosen]


def _find(fs: Any, root: str) -> tuple[str, dict[str, Any] | None]:
    """The base folder, and the entries found below it by path."""
    if fs.isfile(root):
        return root.rpartition("/")[0], {root: fs.info(root)}
    if fs.isdir(root):
        everything = fs.find(root, detail=True).items()
        return root, {path: entry for path, entry in everything if "/." not in path.removeprefix(root)}
    if any(mark in root for mark in "*?["):
        base = root.partition("*")[0].partition("?")[0].partition("[")[0].rpartition("/")[0]
        return base, fs.glob(root, detail=True)
    return root, None


def _is_file(fs: Any, entry: dict[str, Any]) -> bool:
    """Whether an entry is a file or a link to one."""
    return bool(entry["type"] == "file" or (entry["type"] != "directory" and fs.isfile(entry["name"])))


def fingerprint(files: Iterable[SourceFile]) -> str:
    """One digest of all files of a source, in their order."""
    digest = hashlib.sha256()
    for name, size, mark in files:
        digest.update(f"{name}\0{size}\0{mark}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
