"""SHA-256 digests of files, checked on every read, once per process for an unchanged file."""

import hashlib
import os
from pathlib import Path

from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.runtime import once_per_file
from schemas.artifacts import StoredFile

_checked: set[tuple[str, int, int, str]] = set()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


file_sha256 = once_per_file(sha256_of)
"""The same for files that keys are made of, computed once while a file does not change. It checks nothing."""


def check_file(path: Path, expected: StoredFile, *, digest: bool = True) -> None:
    """Raise ArtifactDamagedError if a file is missing or not of the manifest's size and, with `digest`, content."""
    if not path.is_file():
        raise ArtifactDamagedError(f"{path} is missing")
    status = path.stat()
    if status.st_size != expected.size:
        raise ArtifactDamagedError(f"{path} has {status.st_size} bytes where its manifest says {expected.size}")
    if not digest or _seen(path, expected) in _checked:
        return
    found = sha256_of(path)
    if found != expected.sha256:
        raise ArtifactDamagedError(f"{path} has sha256 {found} where its manifest says {expected.sha256}")
    note_checked(path, expected)


def note_checked(path: Path, expected: StoredFile) -> None:
    """Record that a file's digest has been checked, for instance during its download."""
    _checked.add(_seen(path, expected))


def _seen(path: Path, expected: StoredFile) -> tuple[str, int, int, str]:
    status = path.stat()
    return os.fspath(path), status.st_mtime_ns, status.st_ino, expected.sha256
