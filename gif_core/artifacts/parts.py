"""Parts of a stage's work, stored as they are finished, so that a later run does not repeat them.

A part is a file `parts/<stage>/<key>-<sha256 of its content>`: the key identifies the work, the digest its content.
Artifacts list their parts, and `gif artifacts gc` removes parts that no artifact lists.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Final

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError
from gif_core.artifacts.store import ArtifactStore
from schemas.files import PARTS_FILE
from schemas.stages import StageName

PARTS: Final = "parts"
NAME: Final = re.compile(r"[0-9a-f]{64}-[0-9a-f]{64}$")


class PartStore:
    """The parts of one stage in an artifact store."""

    def __init__(self, store: ArtifactStore, stage: StageName) -> None:
        """Does not access the store yet."""
        self.storage, self.folder = store.storage, f"{PARTS}/{stage}"

    def names(self) -> dict[str, str]:
        """The stored parts: file names by key."""
        found = sorted(file.path.rpartition("/")[2] for file in self.storage.find(self.folder))
        return {name.partition("-")[0]: name for name in reversed(found) if NAME.match(name)}

    def find(self, key: str) -> str | None:
        """The file name of a stored part; None if there is none."""
        found = (file.path.rpartition("/")[2] for file in self.storage.find(self.folder, f"{key}-"))
        return min(filter(NAME.match, found), default=None)

    def save(self, key: str, content: bytes) -> str:
        """Store a part under its key; returns the name of its file."""
        name = f"{key}-{hashlib.sha256(content).hexdigest()}"
        self.storage.replace(f"{self.folder}/{name}", content)
        return name

    def load(self, name: str) -> bytes:
        """The content of a part; a damaged part is removed, so that the next run computes it again."""
        try:
            content = self.storage.read(f"{self.folder}/{name}")
        except FileNotFoundError:
            raise ArtifactMissingError(f"the part {name} is missing: run again to compute it") from None
        if hashlib.sha256(content).hexdigest() != name.partition("-")[2]:
            self.storage.remove(f"{self.folder}/{name}")
            raise ArtifactDamagedError(f"the part {name} was damaged and is removed: run again to compute it")
        return content


def list_parts(names: Iterable[str]) -> str:
    """The content of `parts.json`."""
    return json.dumps(list(names), indent=0)


def parts_of(artifact: Artifact) -> list[str]:
    """Names of the parts from which an artifact was assembled."""
    if PARTS_FILE not in artifact.names():
        return []
    names: list[str] = json.loads(artifact.path(PARTS_FILE).read_text())
    return names
