"""Damaged artifacts are invalidated by a note beside the manifest, so that the next run computes them again.

The note, `damaged-<attempt>.json`, names the attempt whose files the manifest lists. So it applies only to the manifest
that was read, not to one that has replaced it meanwhile. Manifest and files stay for inspection.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gif_core.artifacts.errors import FileDamagedError
from gif_core.artifacts.storage import Storage
from schemas.artifacts import Manifest, StoredFile

if TYPE_CHECKING:
    from gif_core.artifacts.store import ArtifactStore

logger = logging.getLogger(__name__)
NOTE: Final = "damaged-"


def note_path(manifest: Manifest) -> str:
    """Path of the note that invalidates the artifact of this manifest."""
    return f"{manifest.stage}/{manifest.key}/{NOTE}{manifest.attempt}.json"


@contextmanager
def condemning(store: "ArtifactStore") -> Iterator[None]:
    """Invalidate artifacts that prove damaged inside the block, so that the next run computes them again."""
    try:
        yield
    except FileDamagedError as error:
        with store.storage.hurried():
            condemn(store, error)
        raise error.with_advice("it is now marked as damaged: run again to compute it again") from error


def condemn(store: "ArtifactStore", error: FileDamagedError) -> None:
    """Invalidate the artifact that was read, and others of its stage whose copy of the same file is damaged too.

    Artifacts may share a file: an extended artifact carries files of an earlier one over, on a disk as hard links.
    """
    for manifest in store.manifests(error.ref.stage):
        for file in manifest.files:
            if (file.name, file.sha256) == (error.file.name, error.file.sha256) and _is_damaged(
                store.storage, manifest, file, error
            ):
                logger.warning("%s/%s is damaged and will be computed again", manifest.stage, manifest.key[:12])
                store.storage.replace(note_path(manifest), f"{error}\n".encode())


def stored_fault(storage: Storage, path: str, file: StoredFile) -> str | None:
    """The fault of a stored file, if there is one; the local cache is not used."""
    try:
        found = storage.sha256(path)
    except FileNotFoundError:
        return "it is missing"
    except (NotADirectoryError, IsADirectoryError, PermissionError, ValueError) as error:
        return f"it cannot be read: {error}"
    return None if found == file.sha256 else f"its sha256 is {found} where the manifest says {file.sha256}"


def _is_damaged(storage: Storage, manifest: Manifest, file: StoredFile, error: FileDamagedError) -> bool:
    if (manifest.key, manifest.attempt) == (error.ref.key, error.attempt):
        return True
    return stored_fault(storage, f"{manifest.stage}/{manifest.key}/{file.path}", file) is not None
