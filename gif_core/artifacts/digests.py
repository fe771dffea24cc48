"""Is a file what its manifest says? Checked on every read, once per process for an unchanged file."""

import hashlib
import os
from pathlib import Path

from gif_core.artifacts.errors import ArtifactDamagedError
from schemas.artifacts import StoredFile

_verified: set[tuple[str, int, int, str]] = set()


def sha256_of(path: Path) -> str:
    """Digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_file(path: Path, expected: StoredFile) -> None:
    """Refuse a file that is missing, of another size or of other content."""
    if not path.is_file():
        raise ArtifactDamagedError(f"{path} is missing")
    status = path.stat()
    if status.st_size != expected.size:
        raise ArtifactDamagedError(f"{path} has {status.st_size} bytes where its manifest says {expected.size}")
    if _seen(path, expected) in _verified:
        return
    found = sha256_of(path)
    if found != expected.sha256:
        raise ArtifactDamagedError(f"{path} has sha256 {found} where its manifest says {expected.sha256}")
    note_verified(path, expected)


def note_verified(path: Path, expected: StoredFile) -> None:
    """Take a file for verified whose content was digested on its way here."""
    _verified.add(_seen(path, expected))


def _seen(path: Path, expected: StoredFile) -> tuple[str, int, int, str]:
    status = path.stat()
    return os.fspath(path), status.st_mtime_ns, status.st_ino, expected.sha256
