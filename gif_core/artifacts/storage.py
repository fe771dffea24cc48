"""The file operations on which the store is built, for local disks; `remote` implements them for object storage."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import fsspec

from gif_core.artifacts.attempts import attempt_name
from gif_core.artifacts.digests import sha256_of
from gif_core.artifacts.listing import FoundFile, FoundUpload

if TYPE_CHECKING:
    from gif_core.artifacts.remote import RemoteStorage


class LocalStorage:
    """A folder: a hard link creates a file exclusively and a rename replaces it, both atomically."""

    def __init__(self, root: Path) -> None:
        """Use the folder `root`, which the first write creates."""
        self.root = root.expanduser().absolute()
        self.url = self.root.as_uri()

    def hurried(self) -> AbstractContextManager[None]:
        """No effect: operations on a disk are not retried."""
        return nullcontext()

    def now(self) -> float:
        """The time by the clock that dates the files: the file server's, for a network folder."""
        if not self.root.is_dir():
            return time.time()
        probe = self._write_aside(self.root / "leases" / "clock", b"")
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()

    def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if it does not exist."""
        return (self.root / path).read_bytes()

    def create(self, path: str, content: bytes) -> None:
        """Write a file that must not exist yet; FileExistsError if it does."""
        target = self.root / path
        temporary = self._write_aside(target, content)
        try:
            os.link(temporary, target)
        finally:
            temporary.unlink()
        sync_folder(target.parent)

    def replace(self, path: str, content: bytes) -> None:
        """Write or overwrite a file; readers see either the old or the new content."""
        target = self.root / path
        self._write_aside(target, content).replace(target)
        sync_folder(target.parent)

    def upload(self, source: Path, path: str) -> str:
        """Copy a local file into the store; returns its SHA-256."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, self.root / path)
        return sha256_of(source)

    def download(self, path: str, target: Path) -> str:
        """Copy a stored file to a local path; returns its SHA-256."""
        shutil.copyfile(self.root / path, target)
        return sha256_of(target)

    def copy(self, source: str, path: str) -> None:
        """Hard-link a stored file (files never change), or copy it where the disk does not support links."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self.root / source, self.root / path)
        except FileExistsError:
            return
        except OSError:
            shutil.copyfile(self.root / source, self.root / path)

    def find(self, folder: str, prefix: str = "") -> Iterator[FoundFile]:
        """All files below a folder, at any depth, whose names begin with `prefix`; none if it does not exist."""
        for directory, _, names in os.walk(self.root / folder):
            for name in (name for name in names if name.startswith(prefix)):
                path = Path(directory, name)
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                yield FoundFile(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def find_uploads(self) -> Iterator[FoundUpload]:
        """None: there are no multipart uploads."""
        yield from ()

    def abort_upload(self, upload: FoundUpload) -> None:
        """No effect."""

    def sha256(self, path: str) -> str:
        """SHA-256 of a stored file."""
        return sha256_of(self.root / path)

    def remove(self, path: str) -> None:
        """Delete a file or a folder; no effect if it does not exist."""
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def local_path(self, path: str) -> Path | None:
        """The path at which the file can be opened directly."""
        return self.root / path

    def _write_aside(self, target: Path, content: bytes) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{attempt_name()}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


Storage: TypeAlias = "RemoteStorage | LocalStorage"


def open_storage(address: str) -> Storage:
    """The storage of a folder or URL."""
    if "://" not in address:
        return LocalStorage(Path(address))
    if address.startswith("file://"):
        return LocalStorage(Path(fsspec.url_to_fs(address)[1]))
    from gif_core.artifacts.remote import RemoteStorage  # its imports are slow

    return RemoteStorage(address.rstrip("/"))


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
