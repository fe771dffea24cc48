"""Local cache of files of remote stores, addressed by digest and checked whenever they are opened.

The cache has a size limit: least recently used files are evicted, but none that a running process uses (`uses`).
"""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gif_core.artifacts.attempts import attempt_name, owner_state
from gif_core.artifacts.digests import check_file, note_checked
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.artifacts.storage import Storage
from gif_core.artifacts.uses import in_use, note_use, sweep_uses
from gif_core.runtime import parse_size, size
from schemas.artifacts import StoredFile

logger = logging.getLogger(__name__)
LIMIT: Final = "GIF_CACHE_SIZE"
"""Environment variable with the size limit."""
DEFAULT_BYTES: Final = 50 * 10**9
SHARE_OF_DISK: Final = 0.8
WEEK: Final = 7 * 24 * 3600.0


@dataclass(frozen=True)
class CachedFile:
    """One cached file."""

    path: Path
    size: int
    used: float

    @property
    def digest(self) -> str:
        """SHA-256 of its content, the name of its folder."""
        return self.path.parent.name


@dataclass(frozen=True)
class CacheUse:
    """Size and use of the cache."""

    folder: Path
    files: int
    size: int
    limit: int
    in_use: int
    """Bytes that running processes use."""


def cache_folder() -> Path:
    """`$GIF_CACHE`, else `gif` in the user's cache folder."""
    given = os.environ.get("GIF_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(user_cache) / "gif"


def cache_limit(held: int = 0) -> int:
    """`$GIF_CACHE_SIZE`, else the smaller of 50 GB and 80 % of free disk space plus what the cache holds."""
    given = os.environ.get(LIMIT)
    if given:
        return parse_size(given, LIMIT)
    return min(DEFAULT_BYTES, int(SHARE_OF_DISK * (shutil.disk_usage(_made(cache_folder())).free + held)))


def draft_folder(attempt: str) -> Path:
    """The local folder for a draft of a remote store."""
    return cache_folder() / "drafts" / attempt


@contextmanager
def partial_file() -> Iterator[Path]:
    """A temporary path for a transfer, removed afterwards together with those of dead processes."""
    _sweep_folder("partial")
    partial = _made(cache_folder() / "partial") / attempt_name()
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def sweep_drafts() -> None:
    """Remove drafts and partial transfers of dead processes of this machine."""
    for name in ("drafts", "partial"):
        _sweep_folder(name)


def _sweep_folder(name: str) -> None:
    for left in (cache_folder() / name).glob("*"):
        if _is_over(left):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _sweep() -> None:
    sweep_drafts()
    sweep_uses(cache_folder())


def _is_over(left: Path) -> bool:
    """Whether a file is abandoned: its process is dead, or unknown and a week has passed since it was written."""
    state = owner_state(left.name)
    try:
        return state == "dead" or (state == "unknown" and time.time() - left.stat().st_mtime > WEEK)
    except FileNotFoundError:
        return False


def fetch(storage: Storage, path: str, file: StoredFile, *, digest: bool = True) -> Path:
    """The cached copy of a stored file, downloaded and digested if it is missing or damaged.

    Without `digest` only the size of an existing copy is checked.
    """
    copy = _place(file)
    with _locked(fcntl.LOCK_SH):
        note_use(cache_folder(), file.sha256)
        there = copy.is_file()
    if there and _is_whole(copy, file, digest):
        return copy
    make_room(file.size)
    with partial_file() as partial:
        found = storage.download(path, partial)
        if found != file.sha256:
            raise ArtifactDamagedError(f"{path} has sha256 {found} where its manifest says {file.sha256}")
        partial.replace(_made(copy.parent) / copy.name)
    note_checked(copy, file)
    return copy


def has(file: StoredFile) -> bool:
    """Whether there is a copy; its content is not checked."""
    return _place(file).is_file()


def keep(source: Path, file: StoredFile) -> None:
    """Hard-link a file that was just uploaded into the cache, since the next stage reads it."""
    make_room(file.size)
    copy = _place(file)
    with partial_file() as partial:
        os.link(source, partial)
        partial.replace(_made(copy.parent) / copy.name)


def make_room(wanted: int) -> None:
    """Evict least recently used files until `wanted` more bytes fit the limit."""
    with _locked(fcntl.LOCK_EX):
        files = cached_files()
        held = sum(file.size for file in files)
        excess = held + wanted - cache_limit(held)
        if excess > 0:
            _sweep()
            excess -= _evict(files, excess)
    if excess > 0:
        logger.warning(
            "the cache %s is %s above its limit (%s): running processes use all of it",
            cache_folder(),
            size(excess),
            LIMIT,
        )


def clear() -> int:
    """Remove all copies that no running process uses, and leftovers of dead ones; the number of bytes removed."""
    with _locked(fcntl.LOCK_EX):
        _sweep()
        files = cached_files()
        return _evict(files, sum(file.size for file in files) + 1)


def describe() -> CacheUse:
    """Size and use of the cache."""
    files, used = cached_files(), in_use(cache_folder())
    held = sum(file.size for file in files)
    busy = sum(file.size for file in files if file.digest in used)
    return CacheUse(cache_folder(), len(files), held, cache_limit(held), busy)


def cached_files() -> list[CachedFile]:
    """All copies, least recently used first."""
    found = []
    for path in cache_folder().glob("files/*/*/*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append(CachedFile(path, status.st_size, status.st_atime))
    return sorted(found, key=lambda file: file.used)


def _evict(files: list[CachedFile], excess: int) -> int:
    used, freed = in_use(cache_folder()), 0
    for file in files:
        if freed >= excess:
            break
        if file.digest not in used:
            file.path.unlink(missing_ok=True)
            _remove_if_empty(file.path.parent)
            freed += file.size
    return freed


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _is_whole(copy: Path, file: StoredFile, digest: bool) -> bool:
    """Check the size and the digest of a copy and record the access time; remove a damaged copy."""
    try:
        check_file(copy, file, digest=digest)
        os.utime(copy, ns=(time.time_ns(), copy.stat().st_mtime_ns))
    except ArtifactDamagedError:
        copy.unlink(missing_ok=True)
        return False
    return True


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    """Lock the cache, so that no file is evicted while it is being looked up; the lock ends with the process."""
    with (_made(cache_folder()) / "lock").open("a") as file:
        fcntl.flock(file, kind)
        yield


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _place(file: StoredFile) -> Path:
    return cache_folder() / "files" / file.sha256[:2] / file.sha256 / Path(file.name).name
