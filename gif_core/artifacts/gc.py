"""Verification of everything stored, and removal of what dead attempts left behind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gif_core.artifacts.attempts import MARKER, State, owner_state
from gif_core.artifacts.cache import sweep_drafts
from gif_core.artifacts.checkpoints import CHECKPOINTS
from gif_core.artifacts.damage import note_path, stored_fault
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError
from gif_core.artifacts.leases import LEASES, find_leases
from gif_core.artifacts.listing import FoundFile, FoundUpload
from gif_core.artifacts.parts import PARTS, parts_of
from gif_core.artifacts.runs import going_on
from gif_core.artifacts.store import MANIFEST, ArtifactStore
from schemas.artifacts import ArtifactRef
from schemas.stages import STAGES, StageName

DAY = 24 * 3600.0
PARTS_KEPT = 7
"""Times longer than other leftovers that parts are kept, for a killed run to go on with."""
RESULTS: Final = "prefect"
"""Where Prefect's results lie."""
RESULTS_KEPT = 30
"""Days that they are kept."""
SMALL_FILES: Final = ("runs", "tags", "decisions", LEASES, RESULTS, PARTS)
"""Where files lie that are written whole under a hidden name, which says who writes, and then named."""
PARTED: frozenset[StageName] = frozenset({"embedding", "evaluation"})
"""The stages that are made in parts."""


@dataclass(frozen=True)
class Checked:
    """One stored file, and what is wrong with it if anything."""

    artifact: str
    name: str
    fault: str | None


@dataclass(frozen=True)
class Leftover:
    """An attempt's folder, or a stray file, that no manifest names."""

    path: str
    size: int
    upload: FoundUpload | None = None
    """Set for a file that was never put together from its parts."""


@dataclass
class Attempt:
    """What lies in one attempt's folder."""

    size: int = 0
    touched: float = 0.0
    unfinished: bool = False

    def add(self, file: FoundFile) -> None:
        """Count one more file."""
        self.size += file.size
        self.touched = max(self.touched, file.modified)
        self.unfinished |= file.path.endswith(f"/{MARKER}")


def verify_artifacts(store: ArtifactStore, refs: list[ArtifactRef]) -> Iterator[Checked]:
    """Read every file of these artifacts and compare it with its manifest."""
    for ref in refs:
        try:
            artifact = store.open(ref)
        except ArtifactDamagedError as error:
            yield Checked(str(ref), MANIFEST, str(error))
            continue
        for file in artifact.manifest.files:
            fault = stored_fault(store.storage, f"{ref.stage}/{ref.key}/{file.path}", file)
            yield Checked(str(ref), file.name, fault)


def find_leftovers(store: ArtifactStore, *, older_than: float = DAY) -> list[Leftover]:
    """Attempts that no manifest names and that nobody needs any more.

    What a process of this machine left when it died goes at once; what a living one has goes never. Attempts of
    other machines, and those that were published and then replaced (somebody may still be reading them), go when
    nothing has happened to them for `older_than` seconds by the store's own clock.
    """
    attempts: dict[str, Attempt] = {}
    for stage in STAGES:
        for file in store.storage.find(stage):
            place = "/".join(file.path.split("/")[:3])
            attempts.setdefault(place, Attempt()).add(file)
    now = store.storage.now()
    published = _published_places(store)
    ended, held = _leases(store, now - older_than)
    written = {
        place.rpartition("/")[0]: seen.touched for place, seen in attempts.items() if place.endswith(f"/{MANIFEST}")
    }
    abandoned = [
        Leftover(place, attempt.size)
        for place, attempt in sorted(attempts.items())
        if place not in published
        and place.rpartition("/")[0] not in held
        and _is_over(place, attempt, written, now - older_than)
    ]
    kept = now - PARTS_KEPT * older_than
    found = [*abandoned, *_unused_parts(store, now, kept), *_old_checkpoints(store, held, kept), *ended]
    found += [*_old_uploads(store, held, now - older_than), *_half_written(store, now - older_than)]
    return [*found, *_old_results(store, now - RESULTS_KEPT * DAY)]


def _leases(store: ArtifactStore, before: float) -> tuple[list[Leftover], set[str]]:
    """Leases of the dead and those that nobody has renewed for long; and attempts of all others' holders."""
    modified = {file.path: file.modified for file in store.storage.find(LEASES)}
    ended, held = [], set()
    for lease in find_leases(store.storage):
        state = owner_state(lease.holder)
        if state == "dead" or (state == "unknown" and modified.get(lease.path, before) < before):
            ended.append(Leftover(lease.path, len(lease.content)))
        else:
            held.add(lease.artifact)
    return ended, held


def _old_uploads(store: ArtifactStore, held: set[str], before: float) -> Iterator[Leftover]:
    """Uploads in parts that were never put together."""
    for upload in store.storage.find_uploads():
        owner = owner_state(upload.path.split("/")[2]) if upload.path.count("/") > 2 else "unknown"
        if owner == "dead" or (owner == "unknown" and _is_for(upload.path) not in held and upload.begun < before):
            yield Leftover(upload.path, 0, upload)


def _old_checkpoints(store: ArtifactStore, held: set[str], before: float) -> Iterator[Leftover]:
    """Checkpoints of computations that nobody is at, and that nobody has carried on for long."""
    found: dict[str, Attempt] = {}
    for file in store.storage.find(CHECKPOINTS):
        found.setdefault("/".join(file.path.split("/")[:3]), Attempt()).add(file)
    for folder, seen in sorted(found.items()):
        if seen.touched < before and _is_for(folder) not in held:
            yield Leftover(folder, seen.size)


def _is_for(path: str) -> str:
    """The artifact, `stage/key`, that a file of an attempt or of a checkpoint is for."""
    stage, key = (*path.removeprefix(f"{CHECKPOINTS}/").split("/"), "")[:2]
    return f"{stage}/{key.partition('-')[0]}"


def _old_results(store: ArtifactStore, before: float) -> Iterator[Leftover]:
    """Results of Prefect's runs that nobody will ask for any more."""
    for file in store.storage.find(RESULTS):
        if file.modified < before and not _is_unnamed(file.path):
            yield Leftover(file.path, file.size)


def _half_written(store: ArtifactStore, before: float) -> Iterator[Leftover]:
    """Small files of a disk whose writers died before they had their names."""
    for folder in SMALL_FILES:
        for file in store.storage.find(folder):
            owner = _owner(file.path)
            if _is_unnamed(file.path) and (owner == "dead" or (owner == "unknown" and file.modified < before)):
                yield Leftover(file.path, file.size)


def _is_unnamed(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".")


def _owner(path: str) -> State:
    """State of the process whose attempt this is, or that began to write it."""
    return owner_state(path.rpartition("." if _is_unnamed(path) else "/")[2])


def _unused_parts(store: ArtifactStore, now: float, before: float) -> Iterator[Leftover]:
    """Parts that no artifact was made of.

    All stay while a run goes on, unless it has said nothing for a week, and when it cannot be told what is in use.
    """
    if going_on(store, now - PARTS_KEPT * DAY):
        return
    try:
        used = {name for ref in store.refs() if ref.stage in PARTED for name in parts_of(store.open(ref))}
    except (ArtifactDamagedError, ArtifactMissingError):
        return
    for file in store.storage.find(PARTS):
        if file.path.rpartition("/")[2] not in used and file.modified < before and not _is_unnamed(file.path):
            yield Leftover(file.path, file.size)


def _is_over(place: str, attempt: Attempt, written: dict[str, float], before: float) -> bool:
    folder, owner = place.rpartition("/")[0], _owner(place)
    if owner == "alive":
        return False
    if owner == "dead" and (attempt.unfinished or _is_unnamed(place) or folder not in written):
        return True
    return max(attempt.touched, written.get(folder, 0.0)) < before


def remove_leftovers(store: ArtifactStore, leftovers: list[Leftover]) -> None:
    """Delete what `find_leftovers` found, and drafts that died on this machine."""
    for leftover in leftovers:
        if leftover.upload:
            store.storage.abort_upload(leftover.upload)
        else:
            store.storage.remove(leftover.path)
    sweep_drafts()


def _published_places(store: ArtifactStore) -> set[str]:
    """What manifests name; all there is beside a manifest that cannot be read."""
    places = set()
    for ref in store.refs():
        folder = f"{ref.stage}/{ref.key}"
        try:
            manifest = store.open(ref).manifest
        except ArtifactMissingError:
            continue
        except ArtifactDamagedError:
            places |= {"/".join(file.path.split("/")[:3]) for file in store.storage.find(folder)}
            continue
        places |= {f"{folder}/{MANIFEST}", note_path(manifest)}
        places |= {f"{folder}/{file.path.split('/')[0]}" for file in manifest.files}
    return places
