"""A trained model as a folder for the Hugging Face hub. It holds no image, label, code or vector of any identity."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore, find_evaluation, seal, sha256_of, with_ancestors
from gif_core.protocols import read_scores, write_json
from gif_core.sharing.card import write_card
from gif_core.writers import new_folder
from schemas.artifacts import StoredFile
from schemas.files import BACKBONE_FILE, IDENTITIES_FILE, MODEL_FILE, SCORES_FILE, Split, identity_table
from schemas.sharing import CARD_FILE, CONFIG_FILE, UNKNOWN_LICENCE, WEIGHTS_FILE, SharedData, SharedModel
from schemas.stages import StageName

SHARED_SETTINGS: Final = (
    "epochs",
    "batch_size",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "schedule",
    "precision",
    "code_weight",
)
"""Settings of training that are handed out; others may name files of this machine."""


def export_folder(
    store: ArtifactStore, model: Artifact, out: Path, *, name: str, licence: str = UNKNOWN_LICENCE
) -> SharedModel:
    """Write weights, scores, record and card of a model; the folder appears when it is complete."""
    artifacts = with_ancestors(store, model)
    evaluation = find_evaluation(store, model, prefer_own_faces=True)
    with new_folder(out) as folder:
        shutil.copyfile(model.path(BACKBONE_FILE), folder / WEIGHTS_FILE)
        if evaluation:
            _write_scores(evaluation, model.ref.key, folder / SCORES_FILE)
            artifacts["evaluation"] = evaluation
        shared = _describe(artifacts, licence, [_stored(path) for path in sorted(folder.iterdir())])
        (folder / CONFIG_FILE).write_bytes(seal(shared))
        (folder / CARD_FILE).write_text(write_card(shared, name, folder, artifacts), "utf-8")
    return shared


def _describe(artifacts: Mapping[StageName, Artifact], licence: str, files: list[StoredFile]) -> SharedModel:
    model = artifacts["training"]
    known = json.loads(model.path(MODEL_FILE).read_text("utf-8"))
    settings: dict[str, Any] = known.get("settings", {})
    return SharedModel(
        backbone=known["backbone"],
        embedding_dim=known["embedding_dim"],
        head=known.get("head", "gif"),
        groups=settings.get("groups", 32),
        license=licence,
        data=_describe_data(artifacts),
        training={each: settings[each] for each in SHARED_SETTINGS if each in settings},
        code_version=model.manifest.code_version,
        created_at=model.manifest.created_at,
        lineage={stage: artifact.made_from for stage, artifact in artifacts.items()},
        files=tuple(files),
    )


def _describe_data(artifacts: Mapping[StageName, Artifact]) -> SharedData:
    """Kinds of sources and counts; of a model that was made elsewhere what it came with."""
    ingestion = artifacts.get("ingestion")
    if ingestion is None:
        return SharedData.model_validate(artifacts["training"].settings.get("data", {}))
    held_out, _ = _count(ingestion, "held_out")
    identities, images = _count(ingestion, "identities")
    kinds = dict.fromkeys(str(source.get("kind")) for source in ingestion.settings.get("sources", []))
    return SharedData(sources=tuple(kinds), identities=identities, images=images, held_out=held_out)


def _count(ingestion: Artifact, split: Split) -> tuple[int, int]:
    """Identities and images of a split."""
    table = identity_table(split)
    if table != IDENTITIES_FILE and table not in ingestion.names():
        return 0, 0
    counts = pq.read_table(ingestion.path(table), columns=["num_samples"])["num_samples"]
    return len(counts), pc.sum(counts).as_py() or 0


def _write_scores(evaluation: Artifact, model: str, path: Path) -> None:
    """The model's own scores: those of other systems, and sets without scores, say nothing about it."""
    sets = {}
    for title, found in read_scores(evaluation.path(SCORES_FILE)).items():
        if "model" in found["systems"]:
            own = {name: {"model": found[name]["model"]} for name in ("systems", "system_flags") if name in found}
            sets[title] = {**found, **own}
    write_json(path, {"model": model, "sets": sets})


def _stored(path: Path) -> StoredFile:
    return StoredFile(name=path.name, path=path.name, size=path.stat().st_size, sha256=sha256_of(path))
