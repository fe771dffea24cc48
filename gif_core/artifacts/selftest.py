"""`gif doctor`'s test of a store: write, create exclusively, read, replace, list, delete."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gif_core.artifacts.storage import Storage, open_storage
from schemas.errors import GifError

FOLDER = "doctor"


class CarelessStoreError(GifError):
    """The store answers, but could lose or mix up artifacts."""


@dataclass(frozen=True)
class AccessStep:
    """One tested operation, and its duration."""

    name: str
    seconds: float


def try_store(address: str) -> Iterator[AccessStep]:
    """Run every operation once on a small file, which is removed at the end; failures are raised."""
    storage, path = open_storage(address), f"{FOLDER}/{secrets.token_hex(8)}"
    with storage.hurried():
        yield from _try_everything(storage, path)


def _try_everything(storage: Storage, path: str) -> Iterator[AccessStep]:
    try:
        yield _timed("write", lambda: storage.create(path, b"first"))
        yield _timed("create only once", lambda: _check_exclusive(storage, path))
        yield _timed("read", lambda: _check_content(storage, path, b"first"))
        yield _timed("replace", lambda: storage.replace(path, b"second"))
        yield _timed("list", lambda: _check_listing(storage, path, len(b"second")))
    finally:
        storage.remove(path)
    yield _timed("delete", lambda: _check_gone(storage, path))


def _timed(name: str, act: Callable[[], None]) -> AccessStep:
    begun = time.monotonic()
    act()
    return AccessStep(name, time.monotonic() - begun)


def _check_exclusive(storage: Storage, path: str) -> None:
    """A second conditional create must fail and must not change the content."""
    try:
        storage.create(path, b"other")
    except FileExistsError:
        _check_content(storage, path, b"first")
        return
    raise CarelessStoreError(
        "it overwrites files that are to be created only if they do not exist (If-None-Match): two runs could "
        "publish over each other. AWS S3, SeaweedFS and MinIO honour it; 'rclone serve s3' does not"
    )


def _check_content(storage: Storage, path: str, content: bytes) -> None:
    found = storage.read(path)
    if found != content:
        raise CarelessStoreError(f"it returned {found!r} after {content!r} was written")


def _check_listing(storage: Storage, path: str, size: int) -> None:
    if (path, size) not in {(file.path, file.size) for file in storage.find(FOLDER)}:
        raise CarelessStoreError("a file that was just written is not listed: the store is not consistent")


def _check_gone(storage: Storage, path: str) -> None:
    try:
        storage.read(path)
    except FileNotFoundError:
        return
    raise CarelessStoreError("a file that was deleted can still be read")
