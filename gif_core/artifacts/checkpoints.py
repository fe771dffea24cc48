"""Checkpoints of a long computation in the store: files first, then `state.json` with their digests.

Each is a folder `checkpoints/<stage>/<name>/<step>-<random>/`. Incomplete checkpoints are ignored, so a process may be
killed at any time. Files are safetensors and JSON.
"""

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gif_core.artifacts import cache
from gif_core.artifacts.digests import check_file, sha256_of
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.artifacts.keys import content_of
from gif_core.artifacts.records import seal, unseal
from gif_core.artifacts.storage import Storage, sync_folder
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import ArtifactRef, CheckpointState, MadeFrom, StoredFile
from schemas.stages import StageName

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)
CHECKPOINTS: Final = "checkpoints"
STATE: Final = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files were complete when it was found."""

    folder: str
    state: CheckpointState
    storage: Storage

    def names(self, prefix: str = "") -> list[str]:
        """Names of the files that start with `prefix`, in order."""
        return sorted(file.name for file in self.state.files if file.name.startswith(prefix))

    def path(self, name: str) -> Path:
        """The local path of a file whose digest was checked."""
        (stored,) = (file for file in self.state.files if file.name == name)
        return _fetch(self.storage, f"{self.folder}/{stored.path}", stored)


class Checkpoints:
    """The checkpoints of one computation, of which the newest `keep` are kept."""

    def __init__(self, store: ArtifactStore, folder: str, *, keep: int = 2) -> None:
        """Does not access the store yet."""
        self.storage, self.folder, self.keep = store.storage, folder, keep
        self.skipped: set[str] = set()

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint; damaged ones are skipped with a warning and removed at the next commit."""
        for folder in self._folders():
            try:
                state = unseal(CheckpointState, self.storage.read(f"{folder}/{STATE}"), f"{folder}/{STATE}")
                checkpoint = Checkpoint(folder, state, self.storage)
                for file in state.files:
                    checkpoint.path(file.name)
            except FileNotFoundError:
                self.skipped.add(folder)
            except ArtifactDamagedError as error:
                self.skipped.add(folder)
                logger.warning("skipping the damaged checkpoint %s: %s", folder, error)
            else:
                return checkpoint
        return None

    def new_folder(self, step: int) -> str:
        """A unique folder, shared by all processes that write this checkpoint."""
        return f"{self.folder}/{step:09d}-{secrets.token_hex(4)}"

    def write(self, folder: str, name: str, tensors: Mapping[str, "Tensor"], about: Mapping[str, str]) -> StoredFile:
        """Store one file of a checkpoint. Torch is imported here, so that looking for checkpoints does not need it."""
        from safetensors.torch import save_file

        with self._local(f"{folder}/{name}") as path:
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, path, dict(about))
            with path.open("rb") as file:
                os.fsync(file.fileno())
            return StoredFile(name=name, path=name, size=path.stat().st_size, sha256=sha256_of(path))

    def commit(self, folder: str, step: int, files: list[StoredFile], values: dict[str, Any]) -> None:
        """Complete a checkpoint by writing its state; then remove skipped and older ones.

        This checkpoint and later steps stay: another run of the same computation may be ahead.
        """
        state = CheckpointState(step=step, files=tuple(files), values=values)
        self.storage.create(f"{folder}/{STATE}", seal(state))
        found = self._folders()
        kept = {folder, *[each for each in found if each not in self.skipped][: self.keep]}
        for old in found:
            if old not in kept:
                self.storage.remove(f"{old}/{STATE}")
                self.storage.remove(old)

    def remove(self) -> None:
        """Remove all checkpoints."""
        self.storage.remove(self.folder)

    def _folders(self) -> list[str]:
        """Folders with a state file, newest first."""
        names = {file.path.rpartition("/") for file in self.storage.find(self.folder)}
        return sorted((folder for folder, _, name in names if name == STATE), reverse=True)

    @contextmanager
    def _local(self, where: str) -> Iterator[Path]:
        """A path to write to: the target itself on a local disk, else a temporary file that is then uploaded."""
        place = self.storage.local_path(where)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            yield place
            sync_folder(place.parent)
            return
        with cache.partial_file() as path:
            yield path
            self.storage.upload(path, where)


def checkpoint_folder(stage: StageName, ref: ArtifactRef, inputs: Mapping[StageName, MadeFrom]) -> str:
    """The folder of an artifact's checkpoints; it depends on the content of the inputs."""
    return f"{CHECKPOINTS}/{stage}/{ref.key}-{content_of(inputs)[:12]}"


def _fetch(storage: Storage, where: str, stored: StoredFile) -> Path:
    local = storage.local_path(where)
    if local is None:
        return cache.fetch(storage, where, stored)
    check_file(local, stored)
    return local
