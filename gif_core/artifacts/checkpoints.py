"""Checkpoints of a long computation in the store: files first, `state.json` last, which names them with their digests.

One lies in `checkpoints/<stage>/<name>/<step>-<random>/`. What is not whole does not count, so that a process may be
killed at any moment. Files are safetensors and JSON.
"""

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from gif_core.artifacts import cache
from gif_core.artifacts.digests import sha256_of, verify_file
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.artifacts.keys import content_of
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
    """A checkpoint that was whole when it was found."""

    folder: str
    state: CheckpointState
    storage: Storage

    def names(self, prefix: str = "") -> list[str]:
        """Names of the files that begin with `prefix`, in order."""
        return sorted(file.name for file in self.state.files if file.name.startswith(prefix))

    def path(self, name: str) -> Path:
        """A local, verified file."""
        (stored,) = (file for file in self.state.files if file.name == name)
        return _fetch(self.storage, f"{self.folder}/{stored.path}", stored)


class Checkpoints:
    """The checkpoints of one computation, the newest few."""

    def __init__(self, store: ArtifactStore, folder: str, *, keep: int = 2) -> None:
        """Nothing is read or written before it is asked for."""
        self.storage, self.folder, self.keep = store.storage, folder, keep
        self.passed_over: set[str] = set()

    def newest(self) -> Checkpoint | None:
        """The newest whole one; damaged ones are passed over with a warning, and go when another is committed."""
        for folder in self._folders():
            try:
                state = CheckpointState.model_validate_json(self.storage.read(f"{folder}/{STATE}"))
                checkpoint = Checkpoint(folder, state, self.storage)
                for file in state.files:
                    checkpoint.path(file.name)
            except FileNotFoundError:
                self.passed_over.add(folder)
            except (ArtifactDamagedError, ValidationError) as error:
                self.passed_over.add(folder)
                logger.warning("the checkpoint %s is damaged and passed over: %s", folder, error)
            else:
                return checkpoint
        return None

    def new_folder(self, step: int) -> str:
        """A folder that no other writer uses; all processes that write one checkpoint share it."""
        return f"{self.folder}/{step:09d}-{secrets.token_hex(4)}"

    def write(self, folder: str, name: str, tensors: Mapping[str, "Tensor"], about: Mapping[str, str]) -> StoredFile:
        """Store one file of a checkpoint. Whoever only looks for checkpoints does without torch."""
        from safetensors.torch import save_file

        with self._local(f"{folder}/{name}") as path:
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, path, dict(about))
            with path.open("rb") as file:
                os.fsync(file.fileno())
            return StoredFile(name=name, path=name, size=path.stat().st_size, sha256=sha256_of(path))

    def commit(self, folder: str, step: int, files: list[StoredFile], values: dict[str, Any]) -> None:
        """Make it count, and remove those that were passed over and all but the newest few of the others.

        This one stays in any case. So do later steps of another run of the same computation, which may be about to
        end with them.
        """
        state = CheckpointState(step=step, files=tuple(files), values=values)
        self.storage.create(f"{folder}/{STATE}", state.model_dump_json().encode())
        found = self._folders()
        kept = {folder, *[each for each in found if each not in self.passed_over][: self.keep]}
        for old in found:
            if old not in kept:
                self.storage.remove(f"{old}/{STATE}")
                self.storage.remove(old)

    def remove(self) -> None:
        """Remove all of them."""
        self.storage.remove(self.folder)

    def _folders(self) -> list[str]:
        """Folders with a state, the newest first."""
        names = {file.path.rpartition("/") for file in self.storage.find(self.folder)}
        return sorted((folder for folder, _, name in names if name == STATE), reverse=True)

    @contextmanager
    def _local(self, where: str) -> Iterator[Path]:
        """A path to write: the place itself on a local disk, else a file beside the cache that is then uploaded."""
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
    """Where the checkpoints of an artifact lie: those made from other inputs lie elsewhere."""
    return f"{CHECKPOINTS}/{stage}/{ref.key}-{content_of(inputs)[:12]}"


def _fetch(storage: Storage, where: str, stored: StoredFile) -> Path:
    local = storage.local_path(where)
    if local is None:
        return cache.fetch(storage, where, stored)
    verify_file(local, stored)
    return local
