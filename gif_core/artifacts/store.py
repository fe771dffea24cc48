"""The artifact store: `<root>/<stage>/<key>/`, files first, the manifest last.

Each attempt writes its files to its own folder, and the manifest lists them. So two writers of one key never touch each
other's files, and the first to create the manifest publishes the artifact.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gif_core.artifacts import cache
from gif_core.artifacts.artifact import Artifact, Draft, Origins
from gif_core.artifacts.attempts import abandon, attempt_name, begin_attempt
from gif_core.artifacts.damage import note_path
from gif_core.artifacts.digests import sha256_of
from gif_core.artifacts.errors import (
    ArtifactDamagedError,
    ArtifactMissingError,
    RecordDamagedError,
    StoreError,
    naming_full_disk,
)
from gif_core.artifacts.keys import content_of
from gif_core.artifacts.records import seal, unseal
from gif_core.artifacts.storage import open_storage, sync_folder
from gif_core.runtime import code_version, describe_environment, with_log_fields
from schemas.artifacts import ArtifactRef, Manifest, StoredFile
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, VERSIONS, StageName

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)
NO_ORIGINS: Origins = {}


class ArtifactStore:
    """Publishes, finds, opens and lists artifacts."""

    def __init__(self, address: str) -> None:
        """Open the store in a folder or at a URL; the first write creates it."""
        self.storage = open_storage(address)

    def ref(self, stage: StageName, key: str) -> ArtifactRef:
        """The reference of an artifact, which need not exist."""
        return ArtifactRef(stage=stage, key=key, uri=f"{self.storage.url}/{stage}/{key}")

    def find(self, stage: StageName, key: str, inputs: Origins = NO_ORIGINS) -> ArtifactRef | None:
        """The reference of an artifact that exists and is up to date (see `look_up`), or None."""
        found = self.look_up(self.ref(stage, key), inputs)
        return found.ref if found else None

    def look_up(self, ref: ArtifactRef, inputs: Origins = NO_ORIGINS) -> Artifact | None:
        """The artifact if it is published, all files exist in full size, and none is known to be damaged; else None.

        Its inputs must have the content of `inputs`: an artifact is out of date when an input was computed again with
        a different result.
        """
        try:
            manifest = self._manifest(ref)
        except ArtifactDamagedError:
            return None
        if manifest is None or any(manifest.inputs.get(name) != source for name, source in inputs.items()):
            return None
        folder = _folder(ref)
        sizes = {found.path: found.size for found in self.storage.find(folder)}
        whole = all(sizes.get(f"{folder}/{file.path}") == file.size for file in manifest.files)
        return Artifact(ref, manifest, self.storage) if whole and note_path(manifest) not in sizes else None

    def open(self, ref: ArtifactRef) -> Artifact:
        """Open an artifact for reading."""
        manifest = self._manifest(ref)
        if manifest is None:
            raise ArtifactMissingError(f"there is no artifact {ref} in {self.storage.url}")
        return Artifact(ref, manifest, self.storage)

    @contextmanager
    def draft(
        self, ref: ArtifactRef, settings: Mapping[str, Any], inputs: Origins, *, resume: bool = False
    ) -> Iterator[Draft]:
        """A folder for an artifact's files; files that are not published are removed at the end.

        With `resume`, continue in the folder of a dead or failed attempt with the same inputs, if there is one, and
        keep the folder for the next attempt if this one fails.
        """
        attempt = attempt_name()
        local = self.storage.local_path(f"{_folder(ref)}/{attempt}")
        folder = cache.draft_folder(attempt) if local is None else local
        purpose = f"{_folder(ref)} from {content_of(inputs)}"
        draft = Draft(ref, settings, inputs, attempt, folder)
        with (
            naming_full_disk(str(folder)),
            begin_attempt(folder, purpose, resume=resume, published=lambda: self._published_attempt(ref)),
        ):
            try:
                yield draft
            except BaseException:
                with self.storage.hurried():
                    self._close_draft(draft, remote=local is None, keep=resume)
                raise
            self._close_draft(draft, remote=local is None, keep=False)

    def _close_draft(self, draft: Draft, *, remote: bool, keep: bool) -> None:
        """Remove what is not published: the whole folder, or hidden files in it.

        Stored files stay if the store does not answer whether they are published.
        """
        draft.settle()
        try:
            if self._published_attempt(draft.ref) != draft.attempt:
                _abandon_if(draft, keep)
                self.storage.remove(f"{_folder(draft.ref)}/{draft.attempt}")
        except StoreError as error:
            logger.warning("files stored for %s stay until 'gif artifacts gc' (%s)", draft.ref, error)
            _abandon_if(draft, keep)
        if remote:
            shutil.rmtree(draft.folder, ignore_errors=True)
            return
        for hidden in sorted(draft.folder.glob(".*"), reverse=True):
            shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()

    def publish(self, draft: Draft, *, replace: bool = False) -> ArtifactRef:
        """Commit a draft by creating its manifest; if another run was first, its artifact is used.

        A manifest whose files are missing or damaged, or that has other inputs, is replaced; with `replace`, any is.
        """
        manifest = Manifest(
            stage=draft.ref.stage,
            key=draft.ref.key,
            version=VERSIONS[draft.ref.stage],
            settings=dict(draft.settings),
            inputs=dict(draft.inputs),
            code_version=code_version(),
            environment=describe_environment(),
            files=self._store_files(draft),
            metrics=draft.metrics,
            created_at=datetime.now(UTC),
            seconds=time.monotonic() - draft.started,
            gpu_seconds=draft.gpu_seconds,
            peak_gpu_memory=draft.peak_gpu_memory,
        )
        self._commit(draft, manifest, replace=replace)
        for folder in draft.spent:
            self.storage.remove(folder)
        return draft.ref

    def _commit(self, draft: Draft, manifest: Manifest, *, replace: bool) -> None:
        path, content = f"{_folder(draft.ref)}/{MANIFEST_FILE}", seal(manifest)
        if replace:
            self.storage.replace(path, content)
            return
        try:
            self.storage.create(path, content)
        except FileExistsError:
            if self._published_attempt(draft.ref) == draft.attempt:
                return
            if self.find(draft.ref.stage, draft.ref.key, draft.inputs):
                logger.info("%s was published by another run meanwhile: using that one", draft.ref)
                return
            self.storage.replace(path, content)

    def _published_attempt(self, ref: ArtifactRef) -> str | None:
        """The attempt whose files the manifest lists.

        Read from the store: an interrupted commit may have succeeded.
        """
        try:
            manifest = self._manifest(ref)
        except ArtifactDamagedError:
            return None
        return manifest.attempt if manifest else None

    def begin_storing(self, draft: Draft, pattern: str) -> None:
        """Start to digest and store finished files while the stage writes others."""
        for path in draft.folder.glob(pattern):
            if path not in draft.begun and path.is_file() and not _is_hidden(draft, path):
                draft.begun[path] = draft.threads.submit(with_log_fields(self._store_file), draft, path)

    def _store_files(self, draft: Draft) -> tuple[StoredFile, ...]:
        """Digest and store all files concurrently."""
        self.begin_storing(draft, "**/*")
        files = [future.result() for future in draft.begun.values()]
        return tuple(sorted(files + self._carry_files(draft), key=lambda file: file.name))

    def _carry_files(self, draft: Draft) -> list[StoredFile]:
        files = []
        for name, (ref, source) in draft.carried.items():
            stored = source.model_copy(update={"path": f"{draft.attempt}/{name}"})
            self.storage.copy(f"{_folder(ref)}/{source.path}", f"{_folder(draft.ref)}/{stored.path}")
            files.append(stored)
        return files

    def _store_file(self, draft: Draft, path: Path) -> StoredFile:
        name = path.relative_to(draft.folder).as_posix()
        where = f"{_folder(draft.ref)}/{draft.attempt}/{name}"
        is_remote = self.storage.local_path(where) is None
        digest = self.storage.upload(path, where) if is_remote else sha256_of(path)
        stored = StoredFile(name=name, path=f"{draft.attempt}/{name}", size=path.stat().st_size, sha256=digest)
        if is_remote:
            cache.keep(path, stored)
            return stored
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(path.parent)
        return stored

    def refs(self, stage: StageName | None = None) -> list[ArtifactRef]:
        """References of all published artifacts, of one stage or of all."""
        return [
            self.ref(name, file.path.split("/")[1])
            for name in ((stage,) if stage else STAGES)
            for file in self.storage.find(name)
            if file.path.count("/") == 2 and file.path.endswith(f"/{MANIFEST_FILE}")
        ]

    def manifests(self, stage: StageName | None = None) -> list[Manifest]:
        """All readable manifests, newest first."""
        found = []
        for ref in self.refs(stage):
            try:
                manifest = self._manifest(ref)
            except ArtifactDamagedError as error:
                logger.warning("%s", error)
            else:
                found += [manifest] if manifest else []
        return sorted(found, key=lambda manifest: manifest.created_at, reverse=True)

    def sql(self, query: str, run: str | None = None) -> "pa.Table":
        """Answer a SELECT about a run, the newest by default, as `gif sql` does; nothing can be changed.

        The tables are codes, nodes, identities, vectors, metrics, scores, artifacts and others: `gif sql` lists them.
        """
        from gif_core.artifacts import sql

        return sql.query(self, query, run)

    def remove(self, ref: ArtifactRef) -> None:
        """Delete an artifact, manifest first, so that no reader sees a part of it."""
        self.storage.remove(f"{_folder(ref)}/{MANIFEST_FILE}")
        self.storage.remove(_folder(ref))

    def _manifest(self, ref: ArtifactRef) -> Manifest | None:
        path = f"{_folder(ref)}/{MANIFEST_FILE}"
        try:
            manifest = unseal(Manifest, self.storage.read(path), path)
        except FileNotFoundError:
            return None
        if (manifest.stage, manifest.key) != (ref.stage, ref.key):
            raise RecordDamagedError(f"{path} is the manifest of {manifest.stage}/{manifest.key[:12]}, not of {ref}")
        return manifest


def _is_hidden(draft: Draft, path: Path) -> bool:
    """Whether a file is temporary: it is not published, and removed afterwards."""
    return path.relative_to(draft.folder).parts[0].startswith(".")


def _abandon_if(draft: Draft, keep: bool) -> None:
    if keep and draft.folder.exists():
        abandon(draft.folder)


def _folder(ref: ArtifactRef) -> str:
    return f"{ref.stage}/{ref.key}"
