"""Which evaluations of a store can stand side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gif_core.artifacts import ArtifactMissingError, ArtifactStore
from schemas.artifacts import Manifest
from schemas.stages import VERSIONS

MOST_BESIDE: Final = 12


@dataclass(frozen=True)
class Scored:
    """An evaluation by what makes others comparable: the same faces, and the same way of measuring."""

    key: str
    ingestion: str
    settings: Mapping[str, Any]


def find_comparable(store: ArtifactStore, scored: Scored, most: int = MOST_BESIDE) -> dict[str, str]:
    """Key and digest of the newest other evaluations of the same faces with the same settings."""
    found = {}
    for manifest in store.manifests("evaluation"):
        comparable = manifest.version == VERSIONS["evaluation"] and manifest.settings == scored.settings
        if comparable and manifest.key != scored.key and _made_of(manifest, scored.ingestion):
            training = manifest.inputs.get("training")
            if training and store.find("evaluation", manifest.key) and store.find("training", training.key):
                found[manifest.key] = manifest.digest
        if len(found) == most:
            break
    return found


def find_evaluation(store: ArtifactStore, training: str) -> str:
    """The newest evaluation of a model."""
    for manifest in store.manifests("evaluation"):
        if "training" in manifest.inputs and manifest.inputs["training"].key == training:
            return manifest.key
    raise ArtifactMissingError(
        f"training/{training[:12]} has no scores in {store.storage.url}: run its configuration with --from evaluation"
    )


def _made_of(manifest: Manifest, ingestion: str) -> bool:
    return "ingestion" in manifest.inputs and manifest.inputs["ingestion"].key == ingestion
