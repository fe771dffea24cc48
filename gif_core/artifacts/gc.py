"""`gif artifacts gc`: removing leftovers of dead attempts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gif_core.artifacts.attempts import MARKER, State, owner_state
from gif_core.artifacts.cache import sweep_drafts
from gif_core.artifacts.checkpoints import CHECKPOINTS
from gif_core.artifacts.damage import note_path
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError
from gif_core.artifacts.gallery_log import GALLERIES, latest_version
from gif_core.artifacts.leases import LEASES, find_leases
from gif_core.artifacts.listing import FoundFile, FoundUpload
from gif_core.artifacts.parts import PARTS, parts_of
from gif_core.artifacts.runs import going_on
from gif_core.artifacts.store import ArtifactStore
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, StageName

DAY = 24 * 3600.0
PARTS_KEPT = 7
"""Parts and checkpoints are kept this many times longer than other leftovers, so that a killed run can resume."""
RESULTS: Final = "prefect"
"""Folder of Prefect's results."""
RESULTS_KEPT = 30
"""Days for which Prefect's results are kept."""
SMALL_FILES: Final = ("runs", "tags", "decisions", GALLERIES, LEASES, RESULTS, PARTS)
"""Folders of files that are written under a hidden name with the writer's id and then renamed."""
PARTED: frozenset[StageName] = frozenset({"embedding", "evaluation"})
"""Stages that are computed in parts."""


@dataclass(frozen=True)
class Leftover:
    """An attempt's folder, or a file, that no manifest refers to."""

    path: str
    size: int
    upload: FoundUpload | None = None
    """Set for an unfinished multipart upload."""


@dataclass
class Attempt:
    """The content of one attempt's folder."""

    size: int = 0
    touched: float = 0.0
    unfinished: bool = False

    def add(self, file: FoundFile) -> None:
        """Count a file."""
        self.size += file.size
        self.touched = max(self.touched, file.modified)
        self.unfinished |= file.path.endswith(f"/{MARKER}")


def find_leftovers(store: ArtifactStore, *, older_than: float = DAY) -> list[Leftover]:
    """Files and folders of the store that no manifest refers to and no process needs.

    Leftovers of dead processes of this machine count at once, those of running processes never. Attempts of other
    machines, and published attempts that were replaced (they may still be read), count when they have not changed for
    `older_than` seconds by the store's clock.
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
        place.rpartition("/")[0]: seen.touched
        for place, seen in attempts.items()
        if place.endswith(f"/{MANIFEST_FILE}")
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
    found += _unlisted_segments(store, now - older_than)
    return [*found, *_old_results(store, now - RESULTS_KEPT * DAY)]


def _leases(store: ArtifactStore, before: float) -> tuple[list[Leftover], set[str]]:
    """Leases that have ended (dead holder, or not renewed since `before`), and the artifacts of all other leases."""
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
    """Multipart uploads that were never completed."""
    for upload in store.storage.find_uploads():
        owner = owner_state(upload.path.split("/")[2]) if upload.path.count("/") > 2 else "unknown"
        if owner == "dead" or (owner == "unknown" and _is_for(upload.path) not in held and upload.begun < before):
            yield Leftover(upload.path, 0, upload)


def _old_checkpoints(store: ArtifactStore, held: set[str], before: float) -> Iterator[Leftover]:
    """Checkpoints of artifacts without a lease that have not changed since `before`."""
    found: dict[str, Attempt] = {}
    for file in store.storage.find(CHECKPOINTS):
        found.setdefault("/".join(file.path.split("/")[:3]), Attempt()).add(file)
    for folder, seen in sorted(found.items()):
        if seen.touched < before and _is_for(folder) not in held:
            yield Leftover(folder, seen.size)


def _is_for(path: str) -> str:
    """The artifact, `stage/key`, of a file of an attempt or a checkpoint."""
    stage, key = (*path.removeprefix(f"{CHECKPOINTS}/").split("/"), "")[:2]
    return f"{stage}/{key.partition('-')[0]}"


def _old_results(store: ArtifactStore, before: float) -> Iterator[Leftover]:
    """Old results of Prefect's runs."""
    for file in store.storage.find(RESULTS):
        if file.modified < before and not _is_unnamed(file.path):
            yield Leftover(file.path, file.size)


def _half_written(store: ArtifactStore, before: float) -> Iterator[Leftover]:
    """Small files whose writers died before renaming them."""
    for folder in SMALL_FILES:
        for file in store.storage.find(folder):
            owner = _owner(file.path)
            if _is_unnamed(file.path) and (owner == "dead" or (owner == "unknown" and file.modified < before)):
                yield Leftover(file.path, file.size)


def _is_unnamed(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".")


def _owner(path: str) -> State:
    """State of the process that wrote an attempt or a hidden file."""
    return owner_state(path.rpartition("." if _is_unnamed(path) else "/")[2])


def _unused_parts(store: ArtifactStore, now: float, before: float) -> Iterator[Leftover]:
    """Parts that no artifact refers to.

    All parts stay while a run is active (unless it was silent for a week), and while some manifest cannot be read.
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


def _unlisted_segments(store: ArtifactStore, before: float) -> Iterator[Leftover]:
    """Templates of galleries that the newest version does not list: leftovers of enrolments that were killed."""
    paths = (file.path.split("/") for file in store.storage.find(GALLERIES))
    for name in {parts[1] for parts in paths if parts[2:3] == ["segments"]}:
        newest = latest_version(store, name)
        listed = set(newest.segments) if newest else set()
        for file in store.storage.find(f"{GALLERIES}/{name}/segments"):
            if file.path.rpartition("/")[2] not in listed and file.modified < before and not _is_unnamed(file.path):
                yield Leftover(file.path, file.size)


def _is_over(place: str, attempt: Attempt, written: dict[str, float], before: float) -> bool:
    folder, owner = place.rpartition("/")[0], _owner(place)
    if owner == "alive":
        return False
    if owner == "dead" and (attempt.unfinished or _is_unnamed(place) or folder not in written):
        return True
    return max(attempt.touched, written.get(folder, 0.0)) < before


def remove_leftovers(store: ArtifactStore, leftovers: list[Leftover]) -> None:
    """Delete what `find_leftovers` found, and drafts of dead processes of this machine."""
    for leftover in leftovers:
        if leftover.upload:
            store.storage.abort_upload(leftover.upload)
        else:
            store.storage.remove(leftover.path)
    sweep_drafts()


def _published_places(store: ArtifactStore) -> set[str]:
    """Paths that manifests refer to, and everything beside a manifest that cannot be read."""
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
        places |= {f"{folder}/{MANIFEST_FILE}", note_path(manifest)}
        places |= {f"{folder}/{file.path.split('/')[0]}" for file in manifest.files}
    return places
