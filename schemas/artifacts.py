"""What the artifact store writes down: references, manifests, tags and run records."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, PositiveInt

from schemas.base import Frozen
from schemas.stages import StageName

KEY_PATTERN = r"^[0-9a-f]{64}$"


class ArtifactRef(Frozen):
    """A small, serializable pointer to one artifact: what tasks hand to each other."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    uri: str
    """Folder of the artifact in its store."""

    def __str__(self) -> str:
        """`stage/first twelve digits of the key`: how people name it on the command line."""
        return f"{self.stage}/{self.key[:12]}"


class StoredFile(Frozen):
    """One file of an artifact."""

    name: str
    """How stages ask for it."""
    path: str
    """Where it lies below the artifact's folder."""
    size: int = Field(ge=0)
    sha256: str = Field(pattern=KEY_PATTERN)


class Manifest(Frozen):
    """The commit point of an artifact: a folder without one does not exist for anybody."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    version: PositiveInt
    """Version of the stage's results (`schemas.stages.VERSIONS`)."""
    settings: dict[str, Any]
    """Everything of the configuration that the key covers."""
    inputs: dict[StageName, str]
    """Keys of the artifacts it was made from."""
    code_version: str
    files: tuple[StoredFile, ...]
    metrics: dict[str, float | int | str]
    created_at: datetime
    seconds: float = Field(ge=0)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Tag(Frozen):
    """A named pointer to an artifact, such as `latest` or `champion`."""

    name: str
    ref: ArtifactRef
    moved_at: datetime


class StageRecord(Frozen):
    """What one run did about one stage."""

    key: str = Field(pattern=KEY_PATTERN)
    action: Literal["computed", "reused"]
    seconds: float = Field(ge=0)


class RunRecord(Frozen):
    """One run of the pipeline: its configuration and the artifacts it made or reused."""

    run_id: str
    config: dict[str, Any]
    state: Literal["running", "completed", "failed", "interrupted"]
    started_at: datetime
    updated_at: datetime
    host: str
    process: int
    current: StageName | None = None
    """The stage in progress, or the one that failed."""
    stages: dict[StageName, StageRecord] = Field(default_factory=dict)
    error: str | None = None
