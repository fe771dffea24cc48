"""The few file operations the store is built on, for local disks and for any fsspec file system."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from gif_core.artifacts.verification import sha256_of


@dataclass(frozen=True)
class FoundFile:
    """A file seen in a listing: its path below the root, its size, and when it was written (seconds)."""

    path: str
    size: int
    modified: float


class RemoteStorage:
    """Object storage through fsspec. A put is atomic there, and a conditional put creates exclusively."""

    def __init__(self, url: str) -> None:
        """Open the file system of `url`; credentials and end point come from the environment."""
        self.fs, self.root = fsspec.url_to_fs(url, use_listings_cache=False)
        self.url = self.fs.unstrip_protocol(self.root)

    def read(self, path: str) -> bytes:
        """The whole content; FileNotFoundError when there is none."""
        content: bytes = self.fs.cat_file(self._at(path))
        return content

    def create(self, path: str, content: bytes) -> None:
        """Write a file that must not exist yet; FileExistsError when somebody was first."""
        try:
            self.fs.pipe_file(self._at(path), content, mode="create")
        except FileExistsError:
            raise
        except OSError as error:
            if self.fs.exists(self._at(path)):
                raise FileExistsError(f"{self._at(path)} exists already") from error
            raise

    def replace(self, path: str, content: bytes) -> None:
        """Write a file whether it exists or not; readers see the old or the new one, whole."""
        self.fs.pipe_file(self._at(path), content)

    def upload(self, source: Path, path: str) -> None:
        """Copy a local file into the store."""
        self.fs.put_file(str(source), self._at(path))

    def download(self, path: str, target: Path) -> None:
        """Copy a stored file to a local path."""
        self.fs.get_file(self._at(path), str(target))

    def copy(self, source: str, path: str) -> None:
        """Copy a stored file within the store; the bytes do not travel."""
        self.fs.cp_file(self._at(source), self._at(path))

    def find(self, folder: str) -> Iterator[FoundFile]:
        """All files below a folder, at any depth; none when it does not exist.

        Some servers keep an emptied folder as an object of its own: that is no file.
        """
        found: dict[str, dict[str, Any]] = self.fs.find(self._at(folder), detail=True)
        for path, info in found.items():
            if path == self._at(folder):
                continue
            written = info.get("LastModified") or info.get("created") or info.get("mtime") or 0
            modified = written if isinstance(written, int | float) else written.timestamp()
            yield FoundFile(path.removeprefix(f"{self.root}/"), int(info["size"]), float(modified))

    def sha256(self, path: str) -> str:
        """Digest of a stored file, read from where it is stored."""
        with self.fs.open(self._at(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def remove(self, path: str) -> None:
        """Delete a file or a whole folder; nothing happens when it is not there."""
        if self.fs.exists(self._at(path)):
            self.fs.rm(self._at(path), recursive=True)

    def local_path(self, path: str) -> Path | None:
        """Where the file can be opened directly, when the storage is a local disk."""
        return None

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else str(self.root)


class LocalStorage:
    """A folder. A hard link creates exclusively and a rename replaces, each with the content whole."""

    def __init__(self, root: Path) -> None:
        """Use `root`, which is made when the first file is written."""
        self.root = root.expanduser().absolute()
        self.url = self.root.as_uri()

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

    def upload(self, source: Path, path: str) -> None:
        """Copy a local file into the store."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, self.root / path)

    def download(self, path: str, target: Path) -> None:
        """Copy a stored file to a local path."""
        shutil.copyfile(self.root / path, target)

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
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary


Storage = RemoteStorage | LocalStorage


def open_storage(address: str) -> Storage:
    """The storage behind a folder or a URL."""
    if "://" not in address:
        return LocalStorage(Path(address))
    if address.startswith("file://"):
        return LocalStorage(Path(fsspec.url_to_fs(address)[1]))
    return RemoteStorage(address.rstrip("/"))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
