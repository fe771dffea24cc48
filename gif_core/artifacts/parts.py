"""Parts of a stage's work, stored one by one as they are done, so that no later run does them again.

A part is a file `parts/<stage>/<key>-<sha256 of its content>`: the key says what it is, the digest whether it is whole.
The artifacts that are made of parts name them, and `gif artifacts gc` sweeps those that none names.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Final

from gif_core.artifacts.artifact import Artifact
from gif_core.artifacts.errors import ArtifactDamagedError, ArtifactMissingError
from gif_core.artifacts.store import ArtifactStore
from schemas.artifacts import PARTS_FILE
from schemas.stages import StageName

PARTS: Final = "parts"
NAME: Final = re.compile(r"[0-9a-f]{64}-[0-9a-f]{64}$")


class PartStore:
    """The parts of one stage in an artifact store."""

    def __init__(self, store: ArtifactStore, stage: StageName) -> None:
        """Nothing is read before it is asked for."""
        self.storage, self.folder = store.storage, f"{PARTS}/{stage}"

    def names(self) -> dict[str, str]:
        """What is stored: the file of every key."""
        found = sorted(file.path.rpartition("/")[2] for file in self.storage.find(self.folder))
        return {name.partition("-")[0]: name for name in reversed(found) if NAME.match(name)}

    def save(self, key: str, content: bytes) -> str:
        """Store a part under its key; the name of its file."""
        name = f"{key}-{hashlib.sha256(content).hexdigest()}"
        self.storage.replace(f"{self.folder}/{name}", content)
        return name

    def load(self, name: str) -> bytes:
        """A part's content; a damaged one is removed, so that the next run makes it anew."""
        try:
            content = self.storage.read(f"{self.folder}/{name}")
        except FileNotFoundError:
            raise ArtifactMissingError(f"the part {name} is gone: run again and it is made anew") from None
        if hashlib.sha256(content).hexdigest() != name.partition("-")[2]:
            self.storage.remove(f"{self.folder}/{name}")
            raise ArtifactDamagedError(f"the part {name} was damaged and is removed: run again and it is made anew")
        return content


def list_parts(names: Iterable[str]) -> str:
    """What an artifact writes down about the parts it was made of."""
    return json.dumps(list(names), indent=0)


def parts_of(artifact: Artifact) -> list[str]:
    """The parts that an artifact was made of."""
    if PARTS_FILE not in artifact.names():
        return []
    names: list[str] = json.loads(artifact.path(PARTS_FILE).read_text())
    return names
