"""Versions of galleries, `galleries/<name>/versions/<number>.json`: created only once, so that no change is lost."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from gif_core.artifacts.store import ArtifactStore
from schemas.errors import GifError
from schemas.galleries import GALLERY_PATTERN, GalleryVersion
from schemas.stages import StageName

GALLERIES: Final = "galleries"


class GalleryError(GifError):
    """A gallery that does not exist or cannot be used."""


def gallery_folder(name: str) -> str:
    """The folder of a gallery in the store."""
    if not re.fullmatch(GALLERY_PATTERN, name):
        raise GalleryError(f"a gallery's name is a lower-case word such as 'staff' or 'team-2', not {name!r}")
    return f"{GALLERIES}/{name}"


def list_galleries(store: ArtifactStore) -> list[str]:
    """Names of all galleries."""
    return sorted({file.path.split("/")[1] for file in store.storage.find(GALLERIES) if _is_version(file.path)})


def read_versions(store: ArtifactStore, name: str) -> list[GalleryVersion]:
    """All versions of a gallery, oldest first."""
    paths = sorted(file.path for file in store.storage.find(f"{gallery_folder(name)}/versions"))
    return [_read(store, path) for path in paths if _is_version(path)]


def latest_version(store: ArtifactStore, name: str) -> GalleryVersion | None:
    """The version in use, or None if there is no such gallery."""
    paths = sorted(file.path for file in store.storage.find(f"{gallery_folder(name)}/versions"))
    found = [path for path in paths if _is_version(path)]
    return _read(store, found[-1]) if found else None


def commit_version(
    store: ArtifactStore, name: str, change: Callable[[GalleryVersion | None], dict[str, Any] | None]
) -> GalleryVersion:
    """Create the next version; `change` maps the newest one to the fields of the next, or to None: it stays.

    When another process creates it first, `change` is called again with that one.
    """
    while True:
        newest = latest_version(store, name)
        number = newest.number + 1 if newest else 1
        try:
            fields = change(newest)
        except FileNotFoundError:  # an identity was removed meanwhile, and with it the files of this version
            if latest_version(store, name) == newest:
                raise
            continue
        if fields is None:
            assert newest, "there is nothing to leave as it is"
            return newest
        version = GalleryVersion(number=number, made_at=datetime.now(UTC), **fields)
        path, content = f"{gallery_folder(name)}/versions/{number:06d}.json", version.model_dump_json(indent=1).encode()
        try:
            store.storage.create(path, content)
        except FileExistsError:
            if _read(store, path) != version:  # else an interrupted request had succeeded
                continue
        return version


def models_of_galleries(store: ArtifactStore) -> set[tuple[StageName, str]]:
    """The models that galleries in use were made with, which pruning keeps."""
    newest = (latest_version(store, name) for name in list_galleries(store))
    return {("training", version.model) for version in newest if version and version.identities}


def _read(store: ArtifactStore, path: str) -> GalleryVersion:
    try:
        return GalleryVersion.model_validate_json(store.storage.read(path))
    except ValidationError as error:
        raise GalleryError(f"{path} of {store.storage.url} is not a version of a gallery: {error}") from None


def _is_version(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 4 and parts[2] == "versions" and parts[3].removesuffix(".json").isdigit()
