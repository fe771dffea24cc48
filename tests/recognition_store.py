"""A small store that is written by hand: a model, its faces, codes, code vectors and scores, without a run.

The code vector of an identity is the feature of its first image, so that this image is found for certain.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from gif_core.artifacts import Artifact, ArtifactStore, move_tag
from gif_core.backbones import build_backbone, embed_images
from gif_core.evaluation import SetResult, SystemResult, measure_identification, pair_metrics, write_scores
from gif_core.heads import TokenHeads
from gif_core.images import Faces
from gif_core.ingestion import ingest
from gif_core.protocols import draw_pairs, pair_distances, verify_distances
from gif_core.readers import open_reader
from gif_core.runtime import result_of
from gif_core.tokenization import CodeShape, draw_codes, write_code_table
from gif_core.training import open_backbone
from schemas.run import RunConfig
from schemas.stages import INPUTS, StageName
from schemas.training import TrainingConfig

SETTINGS = {
    "ingestion": {"sources": [{"kind": "synthetic", "identities": 16, "smallest": 6, "largest": 6}], "held_out": 0.4},
    "evaluation": {"identification": {"images": 40, "beam": 32}},
    "execution": {"device": "cpu", "workers": 1},
}
DIM, SHAPE = 32, CodeShape(2, 4)
CPU = torch.device("cpu")


class Publisher:
    """Publishes artifacts by hand, each with the inputs that its stage has."""

    def __init__(self, store: ArtifactStore) -> None:
        self.store, self.artifacts = store, dict[StageName, Artifact]()

    def publish(self, stage: StageName, fill: Callable[[Path], None], **settings: Any) -> Artifact:
        made_from = {name: self.artifacts[name].made_from for name in INPUTS[stage]}
        ref = self.store.ref(stage, f"{len(self.artifacts) + 1}" * 64)
        with self.store.draft(ref, settings, made_from) as draft:
            fill(draft.folder)
            move_tag(self.store, "latest", self.store.publish(draft))
        self.artifacts[stage] = self.store.open(ref)
        return self.artifacts[stage]


PAIRS: dict[str, Any] = {"pairs": 40, "seed": 5, "folds": 10}


def open_split(artifacts: Mapping[StageName, Artifact], split: str) -> Faces:
    return Faces([artifacts["ingestion"].path(name) for name in artifacts["ingestion"].names(f"{split}-")])


def save_model(folder: Path, **trained: Any) -> None:
    config = TrainingConfig(**trained)
    torch.manual_seed(0)
    model = build_backbone("iresnet_tiny", DIM)
    save_file({name: each.contiguous() for name, each in model.state_dict().items()}, folder / "backbone.safetensors")
    save_file(TokenHeads(SHAPE.length, SHAPE.vocab_size, DIM, scale=16.0).state_dict(), folder / "head.safetensors")
    about = {"backbone": "iresnet_tiny", "embedding_dim": DIM, "head": config.head, "length": SHAPE.length}
    settings = config.model_dump(mode="json")
    (folder / "model.json").write_text(json.dumps(about | {"vocab_size": SHAPE.vocab_size, "settings": settings}))


def save_evaluation(folder: Path, config: RunConfig, artifacts: Mapping[StageName, Artifact]) -> None:
    faces, model = open_split(artifacts, "held_out"), open_backbone(artifacts["training"], CPU)
    pairs = draw_pairs(faces.labels_N, **PAIRS)
    features = np.concatenate(list(embed_images(model, faces, np.arange(len(faces)), flip=True, device=CPU)))
    result = SetResult("held_out", "held_out", "pairs-1", {"folds": 10}, {"pairs": len(pairs)})
    found = verify_distances(pair_distances(features, pairs.left, pairs.right), pairs.same)
    result.systems["model"] = SystemResult(pair_metrics(found), {"flip": True}, found.roc)
    assert config.evaluation.identification
    identified = result_of(measure_identification(config, artifacts, config.evaluation.identification))
    write_scores(folder, [result], artifacts["training"].ref.key, identified)


def fill_store(folder: Path, **trained: Any) -> Mapping[StageName, Artifact]:
    publisher, config = Publisher(ArtifactStore(str(folder))), RunConfig.model_validate(SETTINGS)
    readers = [open_reader(source) for source in config.ingestion.sources]
    publisher.publish(
        "ingestion",
        lambda into: [*ingest(config.ingestion, readers, into), None][-1],
        sources=[reader.describe() for reader in readers],
    )
    publisher.publish("embedding", lambda into: (into / "file").touch())
    scratch = folder / "scratch"
    scratch.mkdir()
    save_model(scratch, **trained)
    faces = open_split(publisher.artifacts, "identities")
    identities = pq.read_table(publisher.artifacts["ingestion"].path("identities.parquet"))
    first_N = np.unique(faces.labels_N, return_index=True)[1]
    model = build_backbone("iresnet_tiny", DIM)
    model.load_state_dict(load_file(scratch / "backbone.safetensors"))
    vectors = np.concatenate(list(embed_images(model.eval(), faces, first_N, flip=True, device=CPU)))
    publisher.publish(
        "separation", lambda into: save_arrays({"code_vectors": vectors}, into / "code_vectors.safetensors")
    )
    codes = draw_codes(len(identities), SHAPE, seed=0)
    publisher.publish("tokenization", lambda into: write_code_table(into, codes, SHAPE, identities))
    publisher.publish("training", lambda into: save_model(into, **trained))
    publisher.publish("evaluation", lambda into: save_evaluation(into, config, publisher.artifacts), **PAIRS)
    return publisher.artifacts
