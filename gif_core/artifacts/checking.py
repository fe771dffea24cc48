"""`gif artifacts check`: reading every stored file and comparing it with its digest."""

from collections.abc import Iterator
from dataclasses import dataclass

from gif_core.artifacts.damage import stored_fault
from gif_core.artifacts.errors import ArtifactDamagedError, RecordDamagedError
from gif_core.artifacts.records import unseal
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import ArtifactRef, RunRecord, Tag
from schemas.base import Stored
from schemas.files import MANIFEST_FILE
from schemas.retraining import Decision


@dataclass(frozen=True)
class Checked:
    """One stored file, and its fault if there is one."""

    artifact: str
    name: str
    fault: str | None


def check_artifacts(store: ArtifactStore, refs: list[ArtifactRef]) -> Iterator[Checked]:
    """Read every file of these artifacts and compare it with the manifest; a bad manifest is reported by its path."""
    for ref in refs:
        try:
            artifact = store.open(ref)
        except ArtifactDamagedError as error:
            yield Checked(str(ref), MANIFEST_FILE, str(error))
            continue
        folder = f"{ref.stage}/{ref.key}"
        sizes = {found.path: found.size for found in store.storage.find(folder)}
        for file in artifact.manifest.files:
            path = f"{folder}/{file.path}"
            fault = stored_fault(store.storage, path, file)
            if fault is None and sizes.get(path) != file.size:
                fault = f"it has {sizes.get(path)} bytes where the manifest says {file.size}"
            yield Checked(str(ref), file.name, fault)


def check_records(store: ArtifactStore) -> Iterator[Checked]:
    """Read every tag, run record and decision, and compare it with its own digest."""
    kinds: dict[str, type[Stored]] = {"tags": Tag, "runs": RunRecord, "decisions": Decision}
    for folder, kind in kinds.items():
        for file in sorted(store.storage.find(folder), key=lambda file: file.path):
            if not file.path.endswith(".json") or "/." in file.path:
                continue
            try:
                unseal(kind, store.storage.read(file.path), file.path)
            except RecordDamagedError as error:
                yield Checked(folder, file.path.removeprefix(f"{folder}/"), str(error))
            else:
                yield Checked(folder, file.path.removeprefix(f"{folder}/"), None)
