"""`RunConfig`: all settings of one run of the pipeline."""

import os
from typing import Any, Final

from pydantic import Field, model_validator

from schemas.addresses import Address
from schemas.base import Frozen, Seed
from schemas.embedding import EmbeddingConfig
from schemas.evaluation import EvaluationConfig
from schemas.execution import ExecutionConfig
from schemas.ingestion import IngestionConfig
from schemas.presets import PresetName, merge, read_preset
from schemas.reporting import ReportingConfig
from schemas.separation import SeparationConfig
from schemas.stages import SEEDED, StageName
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

LINKS: Final = ("extends", "start_from")
"""Settings that name an artifact of an earlier run."""
TUNING: Final = ("freeze", "backbone_rate", "teacher", "teacher_backbone", "teacher_weight")
"""Settings of fine-tuning and distillation."""
OPTIONAL: Final = (*LINKS, *TUNING, "dimension", "relabel", "left_out")
"""Settings that are part of a key only when they are set."""
WATCHING: Final = {"max_skipped", "val_pairs", "batch_size_per_process"}
"""Settings on which no weight depends by themselves: they are in no key, so a training resumes when they change."""


def default_store() -> str:
    """The store when none is configured: `$GIF_STORE`, else the folder `artifacts`."""
    return os.environ.get("GIF_STORE", "artifacts")


def default_data() -> str:
    """The folder of datasets when none is configured: `$GIF_DATA`, else the folder `data`."""
    return os.environ.get("GIF_DATA", "data")


class RunConfig(Frozen):
    """Settings of every stage, the seed, the store, and how to execute the run."""

    preset: PresetName | None = None
    """Preset to start from; all other settings override it."""
    seed: Seed = 0
    """Seed of separation, tokenization and training. Datasets and evaluation sets have their own seeds, so that runs
    with different seeds are compared on the same data."""
    store: Address = Field(default_factory=default_store, validate_default=True)
    """Folder or URL (`s3://bucket/prefix`) of the artifact store. Default: `$GIF_STORE`, else `artifacts`."""
    data: Address = Field(default_factory=default_data, validate_default=True)
    """Folder or URL of datasets and evaluation sets, in place of `{data}` in any other setting, as in the presets.
    Default: `$GIF_DATA`, else `data`."""
    execution: ExecutionConfig = ExecutionConfig()
    """Device, parallelism, checkpoints, retries and time limits; no effect on results."""
    ingestion: IngestionConfig = IngestionConfig()
    """Sources → faces."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Faces → identity vectors."""
    separation: SeparationConfig = SeparationConfig()
    """Identity vectors → code vectors."""
    tokenization: TokenizationConfig = TokenizationConfig()
    """Code vectors → identity codes."""
    training: TrainingConfig = TrainingConfig()
    """Faces, codes and code vectors → a model."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Model and evaluation sets → scores."""
    reporting: ReportingConfig = ReportingConfig()
    """All artifacts → an HTML report."""

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset"):
            data = merge(read_preset(data["preset"]), data)
        if isinstance(data, dict):
            data = _fill_in(data, str(data.get("data") or default_data()).rstrip("/"))
        return _resolve_batch(data)

    def settings(self, stage: StageName) -> dict[str, Any]:
        """The settings that are part of the key of `stage`: what its artifact depends on besides its inputs."""
        settings: dict[str, Any] = getattr(self, stage).model_dump(mode="json", exclude=WATCHING)
        settings = {name: value for name, value in settings.items() if name not in OPTIONAL or value is not None}
        return settings | {"seed": self.seed} if stage in SEEDED else settings


def _fill_in(value: Any, root: str) -> Any:
    """Replace `{data}` in all texts of a table."""
    if isinstance(value, dict):
        return {name: _fill_in(each, root) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_in(each, root) for each in value]
    return value.replace("{data}", root) if isinstance(value, str) else value


def _resolve_batch(data: Any) -> Any:
    """Turn `training.batch_size_per_process` into `training.batch_size`."""
    training, execution = (data.get(name) if isinstance(data, dict) else None for name in ("training", "execution"))
    share = training.get("batch_size_per_process") if isinstance(training, dict) else None
    if not isinstance(share, int):
        return data
    given = execution if isinstance(execution, dict) else {}
    processes, nodes = given.get("processes"), str(given.get("nodes", 1))
    if not isinstance(processes, int) or not nodes.isdecimal():
        raise ValueError(
            "training.batch_size_per_process needs the number of processes, on which the result then depends: set "
            "execution.processes (and execution.nodes to one number), or set training.batch_size instead"
        )
    return merge(data, {"training": {"batch_size": share * processes * int(nodes)}})
