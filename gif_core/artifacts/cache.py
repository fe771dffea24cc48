"""Local copies of files of remote stores, named by their content and verified whenever they are opened."""

import os
import secrets
import shutil
from pathlib import Path

from gif_core.artifacts.attempts import owner_state
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.artifacts.storage import Storage
from gif_core.artifacts.verification import verify_file
from schemas.artifacts import StoredFile


def cache_folder() -> Path:
    """`$GIF_CACHE`, else `gif` in the user's cache folder."""
    given = os.environ.get("GIF_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(user_cache) / "gif"


def draft_folder(attempt: str) -> Path:
    """The local folder in which an artifact of a remote store is prepared."""
    return cache_folder() / "drafts" / attempt


def sweep_drafts() -> None:
    """Remove what processes of this machine left behind when they died."""
    for folder in (cache_folder() / "drafts").glob("*"):
        if owner_state(folder.name) == "dead":
            shutil.rmtree(folder, ignore_errors=True)


def fetch(storage: Storage, path: str, file: StoredFile) -> Path:
    """The local copy of a stored file: from the cache if it is there and whole, else downloaded."""
    copy = _place(file)
    if copy.is_file():
        try:
            verify_file(copy, file)
        except ArtifactDamagedError:
            copy.unlink(missing_ok=True)
        else:
            return copy
    partial = copy.with_name(f".{copy.name}.{secrets.token_hex(6)}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        storage.download(path, partial)
        verify_file(partial, file)
        partial.replace(copy)
    finally:
        partial.unlink(missing_ok=True)
    return copy


def keep(source: Path, file: StoredFile) -> None:
    """Put a file that was just uploaded into the cache, since the next stage reads it; it stays where it is too."""
    copy = _place(file)
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial = copy.with_name(f".{copy.name}.{secrets.token_hex(6)}")
    os.link(source, partial)
    partial.replace(copy)
    partial.unlink(missing_ok=True)


def _place(file: StoredFile) -> Path:
    return cache_folder() / "files" / file.sha256[:2] / file.sha256 / Path(file.name).name
