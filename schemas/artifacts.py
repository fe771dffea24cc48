"""What the artifact store writes down: references, manifests, tags and run records."""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt

from schemas.base import Stored
from schemas.stages import StageName

KEY_PATTERN = r"^[0-9a-f]{64}$"
PARTS_FILE = "parts.json"
"""The file in which an artifact names the parts that it was made of."""
NO_CONTENT = (".duckdb", PARTS_FILE)


def _stay_inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} leads out of the artifact")
    return path


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_stay_inside)]


class ArtifactRef(Stored):
    """A small, serializable pointer to one artifact: what tasks hand to each other."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    uri: str
    """Folder of the artifact in its store."""

    def __str__(self) -> str:
        """`stage/first twelve digits of the key`: how identities name it on the command line."""
        return f"{self.stage}/{self.key[:12]}"


class StoredFile(Stored):
    """One file of an artifact."""

    name: FilePath
    """How stages ask for it."""
    path: FilePath
    """Where it lies below the artifact's folder."""
    size: int = Field(ge=0)
    sha256: str = Field(pattern=KEY_PATTERN)


class MadeFrom(Stored):
    """An input of an artifact: which one, and what it held."""

    key: str = Field(pattern=KEY_PATTERN)
    digest: str = Field(pattern=KEY_PATTERN)


class Manifest(Stored):
    """The commit point of an artifact: a folder without one does not exist for anybody."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    version: PositiveInt
    """Version of the stage's results (`schemas.stages.VERSIONS`)."""
    settings: dict[str, Any]
    """Everything of the configuration that the key covers."""
    inputs: dict[StageName, MadeFrom]
    """The artifacts it was made from."""
    code_version: str
    files: tuple[StoredFile, ...]
    metrics: dict[str, float | int | str]
    created_at: datetime
    seconds: float = Field(ge=0)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def attempt(self) -> str | None:
        """The attempt whose files these are; None when there are none."""
        return self.files[0].path.split("/")[0] if self.files else None

    @property
    def images_per_second(self) -> float | None:
        """How fast images went through the stage, if it counts them."""
        for name, seconds in (("images_per_second", 1.0), ("images", self.seconds)):
            if name in self.metrics and seconds:
                return float(self.metrics[name]) / seconds
        return None

    @property
    def digest(self) -> str:
        """What the artifact holds.

        DuckDB files do not count: each carries a random id of its own, and its rows are in a Parquet file beside it.
        Nor does it count in what parts the work was done.
        """
        files = sorted((file.name, file.sha256) for file in self.files if not file.name.endswith(NO_CONTENT))
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()


class CheckpointState(Stored):
    """The commit point of a checkpoint: one without it does not exist for anybody."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # the metrics of a skipped step are not finite

    step: int = Field(ge=0)
    files: tuple[StoredFile, ...]
    values: dict[str, Any]
    """What the computation keeps besides tensors."""


class Tag(Stored):
    """A named pointer to an artifact, such as `latest` or `champion`."""

    name: str
    ref: ArtifactRef
    moved_at: datetime


class StageRecord(Stored):
    """What one run did about one stage."""

    key: str = Field(pattern=KEY_PATTERN)
    action: Literal["computed", "reused"]
    seconds: float = Field(ge=0)
    """By the clock, of this run: near nothing when it was reused."""
    bytes: int | None = Field(default=None, ge=0)
    """Of the artifact's files; None when it was reused."""
    peak_memory: int | None = Field(default=None, ge=0)
    """Most bytes that the run's processes held together meanwhile; None where the system does not tell."""
    images_per_second: float | None = Field(default=None, ge=0)
    """Images read, embedded or trained on in a second; None for stages without images, and when reused."""


class RunRecord(Stored):
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
