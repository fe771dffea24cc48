"""Records of the artifact store: references, manifests, checkpoints, tags and runs."""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt

from schemas.base import Stored
from schemas.files import PARTS_FILE
from schemas.stages import StageName

KEY_PATTERN = r"^[0-9a-f]{64}$"
NO_CONTENT = (".duckdb", PARTS_FILE)
"""Endings of file names that do not count in an artifact's digest."""


def _stay_inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} leads out of the artifact")
    return path


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_stay_inside)]


class ArtifactRef(Stored):
    """A small, serializable reference to one artifact. Tasks pass references, not data."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    uri: str
    """Folder of the artifact in its store."""

    def __str__(self) -> str:
        """Short name, `stage/first twelve digits of the key`, as used on the command line."""
        return f"{self.stage}/{self.key[:12]}"


class StoredFile(Stored):
    """One file of an artifact."""

    name: FilePath
    """Name by which stages open the file (`schemas.files`)."""
    path: FilePath
    """Path below the artifact's folder; it starts with the attempt that wrote the file."""
    size: int = Field(ge=0)
    """Bytes."""
    sha256: str = Field(pattern=KEY_PATTERN)


class MadeFrom(Stored):
    """An input of an artifact: its key and the digest of its content."""

    key: str = Field(pattern=KEY_PATTERN)
    digest: str = Field(pattern=KEY_PATTERN)


class Environment(Stored):
    """The machine and the packages that published an artifact. No part of its key or of its digest."""

    python: str
    system: str
    """Name and release of the operating system, and the architecture."""
    cpu: str
    cores: int
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that PyTorch saw; empty for stages that do not use it."""
    driver: str | None = None
    """Version of the GPUs' driver."""
    cuda: str | None = None
    """Version of CUDA that PyTorch was built for."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Installed versions of the distribution's requirements."""

    def __str__(self) -> str:
        """One line, without the packages."""
        gpus = "; ".join([*self.gpus, *([f"driver {self.driver}"] if self.driver else [])])
        cuda = f"; CUDA {self.cuda}" if self.cuda else ""
        return f"Python {self.python}; {self.system}; {self.cpu}, {self.cores} cores{'; ' + gpus if gpus else ''}{cuda}"


class Manifest(Stored):
    """The commit point of an artifact. A folder without a manifest is not an artifact."""

    stage: StageName
    key: str = Field(pattern=KEY_PATTERN)
    version: PositiveInt
    """Version of the stage's results (`schemas.stages.VERSIONS`)."""
    settings: dict[str, Any]
    """The settings that are part of the key."""
    inputs: dict[StageName, MadeFrom]
    """The input artifacts, by stage."""
    code_version: str
    """Version of the package and, in a checkout, the commit; `-dirty` where files differ from it."""
    environment: Environment | None = None
    """Where the artifact was published; None if it is older than this field."""
    files: tuple[StoredFile, ...]
    metrics: dict[str, float | int | str]
    created_at: datetime
    seconds: float = Field(ge=0)
    gpu_seconds: float | None = Field(default=None, ge=0)
    """Seconds that GPUs of the publishing machine were used, added up over them; None if none was."""
    peak_gpu_memory: int | None = Field(default=None, ge=0)
    """Most bytes that were used of one of them."""

    @property
    def gpu_hours(self) -> float:
        """Hours of one GPU."""
        return (self.gpu_seconds or 0.0) / 3600

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def attempt(self) -> str | None:
        """The attempt that wrote the files; None for an artifact without files."""
        return self.files[0].path.split("/")[0] if self.files else None

    @property
    def images_per_second(self) -> float | None:
        """Throughput of the stage, if it counts images."""
        for name, seconds in (("images_per_second", 1.0), ("images", self.seconds)):
            if name in self.metrics and seconds:
                return float(self.metrics[name]) / seconds
        return None

    @property
    def digest(self) -> str:
        """SHA-256 of the artifact's content.

        DuckDB files are left out: each contains a random id, and a Parquet file beside it holds the same rows.
        The list of parts is left out too: how the work was divided is not content.
        """
        files = sorted((file.name, file.sha256) for file in self.files if not file.name.endswith(NO_CONTENT))
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()


class CheckpointState(Stored):
    """The commit point of a checkpoint. A folder without it is not a checkpoint."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # metrics of a skipped step are not finite

    step: int = Field(ge=0)
    files: tuple[StoredFile, ...]
    values: dict[str, Any]
    """State other than tensors."""


class Tag(Stored):
    """A named pointer to an artifact, such as `latest` or `champion`."""

    name: str
    ref: ArtifactRef
    moved_at: datetime


class StageRecord(Stored):
    """One stage of a run: computed or reused, and its cost."""

    key: str = Field(pattern=KEY_PATTERN)
    action: Literal["computed", "reused"]
    seconds: float = Field(ge=0)
    """Wall-clock time in this run; close to zero when the artifact was reused."""
    bytes: int | None = Field(default=None, ge=0)
    """Size of the artifact's files; None when it was reused."""
    peak_memory: int | None = Field(default=None, ge=0)
    """Peak resident memory of all processes of the run, in bytes; None where the system does not report it."""
    images_per_second: float | None = Field(default=None, ge=0)
    """Images read, encoded or trained on per second; None for stages without images and for reused artifacts."""


class RunRecord(Stored):
    """One run of the pipeline: its configuration and the artifacts that it computed or reused."""

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
