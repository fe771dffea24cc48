"""A damaged artifact goes out of use: a note beside its manifest says so, and whoever needs it makes it again.

The note, `damaged-<attempt>.json`, names the attempt whose files the manifest names. So it holds for the manifest that
was read and for no other, whoever has replaced that one meanwhile; manifest and files stay for a person to look at.
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
    """Where the note lies that puts what this manifest names out of use."""
    return f"{manifest.stage}/{manifest.key}/{NOTE}{manifest.attempt}.json"


@contextmanager
def condemning(store: "ArtifactStore") -> Iterator[None]:
    """While a run reads: what proves damaged is put out of use, since nobody would make it again otherwise."""
    try:
        yield
    except FileDamagedError as error:
        with store.storage.hurried():
            condemn(store, error)
        raise error.with_advice("it is out of use from now on: run again, and it is made again") from error


def condemn(store: "ArtifactStore", error: FileDamagedError) -> None:
    """Put the artifact out of use that was read, and others of its stage with the same file if theirs is damaged too.

    They may share it: a grown artifact takes files of an earlier one over, on a disk as links.
    """
    for manifest in store.manifests(error.ref.stage):
        for file in manifest.files:
            if (file.name, file.sha256) == (error.file.name, error.file.sha256) and _is_damaged(
                store.storage, manifest, file, error
            ):
                logger.warning("%s/%s is damaged, and out of use from now on", manifest.stage, manifest.key[:12])
                store.storage.replace(note_path(manifest), f"{error}\n".encode())


def stored_fault(storage: Storage, path: str, file: StoredFile) -> str | None:
    """What is wrong with a file where it is stored; the read cache has no say."""
    try:
        found = storage.sha256(path)
    except FileNotFoundError:
        return "it is missing"
    return None if found == file.sha256 else f"its sha256 is {found} where the manifest says {file.sha256}"


def _is_damaged(storage: Storage, manifest: Manifest, file: StoredFile, error: FileDamagedError) -> bool:
    if (manifest.key, manifest.attempt) == (error.ref.key, error.attempt):
        return True
    return stored_fault(storage, f"{manifest.stage}/{manifest.key}/{file.path}", file) is not None
