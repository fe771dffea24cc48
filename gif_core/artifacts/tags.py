"""Tags, named pointers to artifacts, `tags/<stage>/<name>.json`; and finding the artifact that a user names."""

import re
from datetime import UTC, datetime
from typing import Final

from gif_core.artifacts.errors import ArtifactMissingError
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import ArtifactRef, Tag
from schemas.stages import STAGES, StageName

TAG_PATTERN: Final = r"[a-z][a-z0-9_.-]*"


def move_tag(store: ArtifactStore, name: str, ref: ArtifactRef) -> Tag:
    """Point a tag at an artifact, atomically."""
    if not re.fullmatch(TAG_PATTERN, name):
        raise ValueError(f"a tag must be a lower-case word such as 'champion', not {name!r}")
    tag = Tag(name=name, ref=ref, moved_at=datetime.now(UTC))
    store.storage.replace(_path(ref.stage, name), tag.model_dump_json(indent=1).encode())
    return tag


def read_tag(store: ArtifactStore, stage: StageName, name: str) -> Tag | None:
    """The tag, or None if it is not set."""
    try:
        return Tag.model_validate_json(store.storage.read(_path(stage, name)))
    except FileNotFoundError:
        return None


def list_tags(store: ArtifactStore) -> list[Tag]:
    """All tags, by stage and name."""
    files = [file.path for file in store.storage.find("tags") if file.path.endswith(".json")]
    return [Tag.model_validate_json(store.storage.read(path)) for path in sorted(files)]


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
    for tag in list_tags(store):
        if (tag.ref.stage, tag.name) == (stage, name):
            return store.ref(tag.ref.stage, tag.ref.key)
    known = ", ".join(f"{tag.ref.stage}@{tag.name}" for tag in list_tags(store)) or "none yet"
    raise ArtifactMissingError(f"there is no tag {text!r}; tags are: {known}")


def _path(stage: StageName, name: str) -> str:
    return f"tags/{stage}/{name}.json"
