"""The few file operations the store is built on, for local disks; `remote` has them for object storage."""

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
    """A folder. A hard link creates exclusively and a rename replaces, each with the content whole."""

    def __init__(self, root: Path) -> None:
        """Use `root`, which is made when the first file is written."""
        self.root = root.expanduser().absolute()
        self.url = self.root.as_uri()

    def hurried(self) -> AbstractContextManager[None]:
        """A disk answers or fails: there is nobody to wait for."""
        return nullcontext()

    def now(self) -> float:
        """The time by the clock that dates the files: another machine's, where the folder is mounted from one."""
        if not self.root.is_dir():
            return time.time()
        probe = self._write_aside(self.root / "leases" / "clock", b"")
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()

    def read(self, path: str) -> bytes:
        """The whole content; FileNotFoundError when there is none."""
        return (self.root / path).read_bytes()

    def create(self, path: str, content: bytes) -> None:
        """Write a file that must not exist yet; FileExistsError when somebody was first."""
        target = self.root / path
        temporary = self._write_aside(target, content)
        try:
            os.link(temporary, target)
        finally:
            temporary.unlink()
        sync_folder(target.parent)

    def replace(self, path: str, content: bytes) -> None:
        """Write a file whether it exists or not; readers see the old or the new one, whole."""
        target = self.root / path
        self._write_aside(target, content).replace(target)
        sync_folder(target.parent)

    def upload(self, source: Path, path: str) -> str:
        """Copy a local file into the store; its sha256."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, self.root / path)
        return sha256_of(source)

    def download(self, path: str, target: Path) -> str:
        """Copy a stored file to a local path; its sha256."""
        shutil.copyfile(self.root / path, target)
        return sha256_of(target)

    def copy(self, source: str, path: str) -> None:
        """A second name for a stored file, which nobody changes; a copy where the disk knows no links."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self.root / source, self.root / path)
        except FileExistsError:
            return
        except OSError:
            shutil.copyfile(self.root / source, self.root / path)

    def find(self, folder: str) -> Iterator[FoundFile]:
        """All files below a folder, at any depth; none when it does not exist."""
        for directory, _, names in os.walk(self.root / folder):
            for name in names:
                path = Path(directory, name)
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                yield FoundFile(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def find_uploads(self) -> Iterator[FoundUpload]:
        """None: files are written where they stay."""
        yield from ()

    def abort_upload(self, upload: FoundUpload) -> None:
        """Nothing to do."""

    def sha256(self, path: str) -> str:
        """Digest of a stored file, read from where it is stored."""
        return sha256_of(self.root / path)

    def remove(self, path: str) -> None:
        """Delete a file or a whole folder; nothing happens when it is not there."""
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def local_path(self, path: str) -> Path | None:
        """Where the file can be opened directly, when the storage is a local disk."""
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
    """The storage behind a folder or a URL."""
    if "://" not in address:
        return LocalStorage(Path(address))
    if address.startswith("file://"):
        return LocalStorage(Path(fsspec.url_to_fs(address)[1]))
    from gif_core.artifacts.remote import RemoteStorage  # what it needs takes a while to import

    return RemoteStorage(address.rstrip("/"))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
