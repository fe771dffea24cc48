"""Removing an identity from a gallery: its vectors are deleted, and what else holds them is listed."""

from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore, GalleryError, commit_version, list_galleries
from gif_core.galleries.gallery import read_newest
from gif_core.galleries.segments import load_segment, save_segment, segment_path
from schemas.files import HELD_OUT_FILE, IDENTITIES_FILE
from schemas.galleries import GalleryVersion


@dataclass(frozen=True)
class Removed:
    """What was removed, and where the identity still is."""

    version: GalleryVersion
    images: int
    held_by: list[str]


def remove(store: ArtifactStore, name: str, label: str) -> Removed:
    """Remove an identity: files with its vectors are written again without them, and deleted.

    The threshold stays: among fewer identities, no more unknown faces reach it.
    """
    images = _images_of(store, name, label)
    rewritten: dict[str, str | None] = {}

    def change(newest: GalleryVersion | None) -> dict[str, Any]:
        if newest is None:
            raise GalleryError(f"there is no gallery {name!r}")
        for segment in newest.segments:
            if segment not in rewritten:
                rewritten[segment] = _rewrite(store, name, segment, label)
        kept = tuple(dict.fromkeys(new for new in (rewritten[segment] for segment in newest.segments) if new))
        labels = {each for segment in kept for each in load_segment(store, name, segment, digests=False).labels}
        return newest.model_dump(exclude={"number", "made_at"}) | {
            "segments": kept,
            "identities": len(labels),
            "images": max(0, newest.images - images),
            "change": "removed 1 identity",
        }

    version = commit_version(store, name, change)
    written = {segment for segment in rewritten.values() if segment}
    for segment in (set(rewritten) | written) - set(version.segments):
        store.storage.remove(segment_path(name, segment))
    return Removed(version, images, find_holders(store, label))


def find_holders(store: ArtifactStore, label: str) -> list[str]:
    """Galleries and ingestions of the store that have an identity of this name."""
    galleries = [name for name in list_galleries(store) if label in read_newest(store, name, digests=False)[1].labels]
    ingestions = [str(ref) for ref in store.refs("ingestion") if label in _labels_of(store.open(ref))]
    return [f"the gallery {name}" for name in galleries] + [
        f"{ref}, its faces, and what was made from it" for ref in ingestions
    ]


def _labels_of(ingestion: Artifact) -> set[str]:
    tables = [pq.read_table(ingestion.path(file), columns=["label"]) for file in (IDENTITIES_FILE, HELD_OUT_FILE)]
    return {label for table in tables for label in table["label"].to_pylist()}


def _images_of(store: ArtifactStore, name: str, label: str) -> int:
    _, templates = read_newest(store, name)
    if label not in templates.labels:
        raise GalleryError(f"{label!r} is not enrolled in {name}: 'gif gallery show {name}' lists who is")
    return len(templates.digests[templates.labels.index(label)])


def _rewrite(store: ArtifactStore, name: str, segment: str, label: str) -> str | None:
    """The name of the file without the identity: the same file if it does not hold it, None if nobody else is in it."""
    templates = load_segment(store, name, segment)
    if label not in templates.labels:
        return segment
    rest = templates.without([label])
    return save_segment(store, name, rest) if len(rest) else None
