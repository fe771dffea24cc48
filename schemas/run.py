"""`RunConfig`: everything that one run of the pipeline may be told."""

import os
from typing import Any, Final

from pydantic import Field, model_validator

from schemas.addresses import Address
from schemas.base import Frozen
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
"""Settings that name an artifact of an earlier run; where there is none, a key is as if nobody knew of them."""
OPTIONAL: Final = (*LINKS, "dimension")
"""Settings that are in no key unless they are given: artifacts of before they were there stay in use."""
WATCHING: Final = {"max_skipped", "val_pairs"}
"""Settings that no weight depends on: they are in no key, and a training goes on when they change."""


def default_store() -> str:
    """The store of runs that name none: `$GIF_STORE`, else the folder `artifacts`."""
    return os.environ.get("GIF_STORE", "artifacts")


class RunConfig(Frozen):
    """One model per stage, the seed, the store, and how to execute."""

    preset: PresetName | None = None
    """Settings to start from; whatever else is given here goes on top."""
    seed: int = Field(default=0, ge=0)
    store: Address = Field(default_factory=default_store, validate_default=True)
    """Folder or URL (`s3://bucket/prefix`) of the artifact store."""
    execution: ExecutionConfig = ExecutionConfig()
    ingestion: IngestionConfig = IngestionConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    separation: SeparationConfig = SeparationConfig()
    tokenization: TokenizationConfig = TokenizationConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    reporting: ReportingConfig = ReportingConfig()

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset"):
            return merge(read_preset(data["preset"]), data)
        return data

    def settings(self, stage: StageName) -> dict[str, Any]:
        """What an artifact of `stage` depends on besides its inputs: the configured part of its key."""
        settings: dict[str, Any] = getattr(self, stage).model_dump(mode="json", exclude=WATCHING)
        settings = {name: value for name, value in settings.items() if name not in OPTIONAL or value is not None}
        return settings | {"seed": self.seed} if stage in SEEDED else settings
