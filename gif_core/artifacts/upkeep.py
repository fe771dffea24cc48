"""Verification of everything stored, and removal of what dead attempts left behind."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from gif_core.artifacts.attempts import is_owner_dead
from gif_core.artifacts.cache import sweep_drafts
from gif_core.artifacts.errors import ArtifactDamagedError
from gif_core.artifacts.store import MANIFEST, ArtifactStore
from schemas.artifacts import ArtifactRef, StoredFile
from schemas.stages import STAGES

DAY = 24 * 3600.0


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


def verify_artifacts(store: ArtifactStore, refs: list[ArtifactRef]) -> Iterator[Checked]:
    """Read every file of these artifacts and compare it with its manifest."""
    for ref in refs:
        try:
            artifact = store.open(ref)
        except ArtifactDamagedError as error:
            yield Checked(str(ref), MANIFEST, str(error))
            continue
        for file in artifact.manifest.files:
            yield Checked(str(ref), file.name, _fault(store, f"{ref.stage}/{ref.key}/{file.path}", file))


def _fault(store: ArtifactStore, path: str, file: StoredFile) -> str | None:
    """What is wrong with the file where it is stored; the read cache has no say."""
    try:
        found = store.storage.sha256(path)
    except FileNotFoundError:
        return "it is missing"
    return None if found == file.sha256 else f"its sha256 is {found} where the manifest says {file.sha256}"


def find_leftovers(store: ArtifactStore, *, older_than: float = DAY) -> list[Leftover]:
    """Attempts without a manifest whose owner is dead or that nobody has touched for `older_than` seconds."""
    sizes: dict[str, int] = {}
    touched: dict[str, float] = {}
    for stage in STAGES:
        for file in store.storage.find(stage):
            place = "/".join(file.path.split("/")[:3])
            sizes[place] = sizes.get(place, 0) + file.size
            touched[place] = max(touched.get(place, 0.0), file.modified)
    published = _published_places(store)
    before = time.time() - older_than
    return [
        Leftover(place, size)
        for place, size in sorted(sizes.items())
        if place not in published and (is_owner_dead(place.split("/")[-1]) or touched[place] < before)
    ]


def remove_leftovers(store: ArtifactStore, leftovers: list[Leftover]) -> None:
    """Delete what `find_leftovers` found, and drafts that died on this machine."""
    for leftover in leftovers:
        store.storage.remove(leftover.path)
    sweep_drafts()


def _published_places(store: ArtifactStore) -> set[str]:
    places = set()
    for manifest in store.manifests():
        folder = f"{manifest.stage}/{manifest.key}"
        places.add(f"{folder}/{MANIFEST}")
        places.update(f"{folder}/{file.path.split('/')[0]}" for file in manifest.files)
    return places
