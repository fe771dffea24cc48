"""Artifact: a published result, open for reading. Draft: a result in progress, open for writing."""

import logging
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gif_core.artifacts import cache
from gif_core.artifacts.digests import check_file
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError, FileDamagedError
from gif_core.artifacts.storage import Storage
from gif_core.runtime import with_log_fields
from schemas.artifacts import ArtifactRef, MadeFrom, Manifest, StoredFile
from schemas.files import WORK_FOLDER
from schemas.stages import StageName

logger = logging.getLogger(__name__)
MOST_AT_ONCE = min(os.cpu_count() or 1, 8)
"""Files that are digested, uploaded or downloaded concurrently."""
Origins = Mapping[StageName, MadeFrom]


@dataclass(frozen=True)
class Artifact:
    """A published artifact, open for reading."""

    ref: ArtifactRef
    manifest: Manifest
    storage: Storage

    @property
    def made_from(self) -> MadeFrom:
        """The entry by which manifests record this artifact as an input."""
        return MadeFrom(key=self.ref.key, digest=self.manifest.digest)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in its key."""
        return self.manifest.settings

    def path(self, name: str, *, digest: bool = True) -> Path:
        """The local path of a file whose digest was checked; a mismatch is read twice before it is an error.

        Without `digest` only the size is checked. That is for large files of which little is read, and for schemas.
        It is safe against truncated and exchanged files: content was digested when the file was published, and when
        its copy was fetched from a remote store. Damage of the local disk since then goes unnoticed, so whatever is
        computed to be stored reads with `digest`; `gif artifacts check` digests all files.
        """
        stored = self.stored(name)
        try:
            return self._checked(stored, digest)
        except (ArtifactDamagedError, FileNotFoundError) as error:
            logger.warning("%s of %s is read again: %s", name, self.ref, error)
        try:
            return self._checked(stored, digest)
        except (ArtifactDamagedError, FileNotFoundError) as error:
            advice = f"rebuild it with 'gif run --refresh {self.ref.stage}' and the run's configuration"
            raise FileDamagedError(self.ref, self.manifest.attempt or "", stored, str(error), advice) from error

    def _checked(self, stored: StoredFile, digest: bool) -> Path:
        where = f"{self.ref.stage}/{self.ref.key}/{stored.path}"
        local = self.storage.local_path(where)
        if local is None:
            return cache.fetch(self.storage, where, stored, digest=digest)
        check_file(local, stored, digest=digest)
        return local

    def paths(self, prefix: str = "") -> list[Path]:
        """Local paths of all files whose names start with `prefix`, in order, fetched concurrently."""
        with ThreadPoolExecutor(MOST_AT_ONCE, "gif-fetch") as threads:
            fetched = [threads.submit(with_log_fields(self.path), name) for name in self.names(prefix)]
            return [each.result() for each in fetched]

    def names(self, prefix: str = "") -> list[str]:
        """Names of all files that start with `prefix`, in order."""
        return sorted(file.name for file in self.manifest.files if file.name.startswith(prefix))

    def stored(self, name: str) -> StoredFile:
        """The manifest's entry for a file."""
        for file in self.manifest.files:
            if file.name == name:
                return file
        raise ArtifactMissingError(f"{self.ref} has no file {name}; it has: {', '.join(self.names())}")


Inputs = Mapping[StageName, Artifact]
"""The artifacts that a stage reads."""


@dataclass
class Draft:
    """A local folder that a stage fills; `metrics` become the manifest's headline metrics."""

    ref: ArtifactRef
    settings: Mapping[str, Any]
    inputs: Origins
    attempt: str
    folder: Path
    started: float = field(default_factory=time.monotonic)
    metrics: dict[str, float | int | str] = field(default_factory=dict)
    gpu_seconds: float | None = None
    """Of the stage's work; None without GPUs."""
    peak_gpu_memory: int | None = None
    from_scratch: bool = False
    """Whether to compute everything again, ignoring stored parts and checkpoints."""
    carried: dict[str, tuple[ArtifactRef, StoredFile]] = field(default_factory=dict)
    spent: list[str] = field(default_factory=list)
    """Folders of the store to remove after publishing, such as checkpoints."""
    begun: dict[Path, Future[StoredFile]] = field(default_factory=dict)
    """Files whose digest and upload have started."""
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE, "gif-store"))

    @property
    def work(self) -> Path:
        """A folder for files on the way, which are not published: hidden folders never are."""
        return self.folder / WORK_FOLDER

    def carry(self, artifact: Artifact, names: Iterable[str]) -> None:
        """Include files of another artifact unchanged; publishing links or copies them within the store."""
        self.carried |= {name: (artifact.ref, artifact.stored(name)) for name in names}

    def settle(self) -> None:
        """Stop storing files."""
        self.threads.shutdown(cancel_futures=True)
