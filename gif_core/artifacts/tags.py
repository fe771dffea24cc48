"""Tags, named pointers to artifacts, `tags/<stage>/<name>.json`; and finding the artifact that a user names."""

import logging
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from gif_core.artifacts.errors import ArtifactMissingError, RecordDamagedError
from gif_core.artifacts.records import seal, unseal
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import ArtifactRef, Tag
from schemas.stages import STAGES, StageName

logger = logging.getLogger(__name__)
TAG_PATTERN: Final = r"[a-z][a-z0-9_.-]*"


def move_tag(store: ArtifactStore, name: str, ref: ArtifactRef) -> Tag:
    """Point a tag at an artifact, atomically; one that points there already is left as it is."""
    if not re.fullmatch(TAG_PATTERN, name):
        raise ValueError(f"a tag must be a lower-case word such as 'champion', not {name!r}")
    with suppress(RecordDamagedError):
        found = read_tag(store, ref.stage, name)
        if found is not None and found.ref == ref:
            return found
    tag = Tag(name=name, ref=ref, moved_at=datetime.now(UTC))
    store.storage.replace(_path(ref.stage, name), seal(tag))
    return tag


def read_tag(store: ArtifactStore, stage: StageName, name: str) -> Tag | None:
    """The tag, or None if it is not set."""
    try:
        return _read(store, _path(stage, name))
    except FileNotFoundError:
        return None


def list_tags(store: ArtifactStore, *, strict: bool = False) -> list[Tag]:
    """All tags, by stage and name; unreadable ones are skipped with a warning, or an error if `strict`."""
    tags = []
    for path in sorted(file.path for file in store.storage.find("tags") if file.path.endswith(".json")):
        try:
            tags.append(_read(store, path))
        except RecordDamagedError as error:
            if strict:
                raise
            logger.warning("%s", error)
    return tags


def _read(store: ArtifactStore, path: str) -> Tag:
    tag = unseal(Tag, store.storage.read(path), path)
    if path != _path(tag.ref.stage, tag.name):
        raise RecordDamagedError(f"{path} is the tag {tag.ref.stage}@{tag.name}: set it again")
    return tag


def resolve(store: ArtifactStore, text: str) -> ArtifactRef:
    """Find the artifact that a text names: `stage/key`, the key's first digits, or `stage@tag`."""
    if "@" in text:
        return _resolve_tag(store, text)
    stage, _, start = text.rpartition("/")
    names = (stage,) if stage else STAGES
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        raise ArtifactMissingError(f"unknown stage {stage!r}; stages are: {', '.join(STAGES)}")
    found = [ref for ref in store.refs() if ref.stage in names and ref.key.startswith(start)]
    if len(found) != 1:
        matches = ", ".join(map(str, found)) or "none; 'gif artifacts ls' lists them"
        raise ArtifactMissingError(f"{text!r} names {len(found)} artifacts: {matches}")
    return found[0]


def _resolve_tag(store: ArtifactStore, text: str) -> ArtifactRef:
    stage, _, name = text.partition("@")
    known_stage = next((each for each in STAGES if each == stage), None)
    tag = read_tag(store, known_stage, name) if known_stage and re.fullmatch(TAG_PATTERN, name) else None
    if tag is not None:
        return store.ref(tag.ref.stage, tag.ref.key)
    known = ", ".join(f"{tag.ref.stage}@{tag.name}" for tag in list_tags(store)) or "none yet"
    raise ArtifactMissingError(f"there is no tag {text!r}; tags are: {known}")


def _path(stage: StageName, name: str) -> str:
    return f"tags/{stage}/{name}.json"
