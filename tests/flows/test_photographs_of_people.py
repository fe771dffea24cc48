"""Photographs as they come from a camera → names: real detector, real people, a small model trained on other people."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.images import Faces
from gif_core.ingestion import ingest
from gif_core.readers import open_reader
from gif_core.runtime import ProcessGroup
from gif_core.tokenization import CodeShape, draw_codes, write_code_table
from gif_core.training.trainer import begin_training
from schemas.ingestion import FolderSource, IngestionConfig
from schemas.training import TrainingConfig
from tests.recognition_store import CPU, Publisher, open_split

Gif = Callable[..., str]
OTHERS = Path(__file__).parents[3] / "shared" / "data" / "faces_299"
DIM, SHAPE = 128, CodeShape(2, 20)
CONFIG = TrainingConfig.model_validate(
    {"backbone": "iresnet_tiny", "head": "cosface", "optimizer": "adamw", "learning_rate": 0.002}
    | {"weight_decay": 0.05, "epochs": 4, "batch_size": 64, "warmup_steps": 50, "margin": 0.2, "scale": 32.0}
)


def train(faces: Faces, identities: int, folder: Path) -> None:
    """A small network that tells a few hundred people apart, in a minute or two."""
    codes = draw_codes(identities, SHAPE, seed=0)
    vectors = np.random.default_rng(0).standard_normal((identities, DIM)).astype(np.float32)
    training = begin_training(faces, codes, vectors, CONFIG, seed=0, group=ProcessGroup(CPU), num_values=20)
    for _ in training.run():
        pass
    weights = {name: each.contiguous() for name, each in training.state.model.state_dict().items()}
    save_file(weights, folder / "backbone.safetensors")
    save_file({"unused": weights[next(iter(weights))]}, folder / "head.safetensors")
    about = {"backbone": "iresnet_tiny", "embedding_dim": DIM, "head": "cosface", "length": 2, "vocab_size": 20}
    (folder / "model.json").write_text(json.dumps(about | {"settings": CONFIG.model_dump(mode="json")}))


def fill(folder: Path) -> Artifact:
    """A store with a model of other people, whose held-out identities calibrate thresholds."""
    config = IngestionConfig(sources=(FolderSource(path=str(OTHERS)),), held_out=0.15)
    publisher = Publisher(ArtifactStore(str(folder)))
    readers = [open_reader(source) for source in config.sources]
    publisher.publish("ingestion", lambda into: [*ingest(config, readers, into), None][-1])
    identities = pq.read_table(publisher.artifacts["ingestion"].path("identities.parquet"))
    codes = draw_codes(len(identities), SHAPE, seed=0)
    publisher.publish("embedding", lambda into: (into / "file").touch())
    publisher.publish(
        "separation",
        lambda into: save_arrays({"code_vectors": np.eye(DIM, dtype=np.float32)}, into / "code_vectors.safetensors"),
    )
    publisher.publish("tokenization", lambda into: write_code_table(into, codes, SHAPE, identities))
    faces = open_split(publisher.artifacts, "identities")
    return publisher.publish("training", lambda into: train(faces, len(identities), into))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("detector")
@pytest.mark.skipif(not OTHERS.is_dir(), reason="needs faces to train on")
def test_twenty_photographs_of_four_people_are_enrolled_and_identified_by_two_commands_and_strangers_are_refused(
    tmp_path: Path, photographs: Path, run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "store")
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    shown = sorted(photographs.glob("*_*/*_000[1-5].jpg"))
    assert len(shown) == 20
    for path in shown:
        target = tmp_path / "album" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    printed = run_gif("enroll", str(tmp_path / "album"), "--gallery", "four", "--model", "latest", "--fpir", "0.05")
    assert "four, version 1: 4 people, 20 images; 20 new" in printed
    others = sorted(photographs.glob("*_*/*_0006.jpg"))
    strangers = sorted(photographs.glob("strangers/*.jpg"))
    asked = [str(path) for path in (*shown, *others, *strangers)]
    lines = run_gif("identify", *asked, "--gallery", "four", "--top", "1", "--json").splitlines()
    answers = [json.loads(line) for line in lines]
    right = [
        bool(answer["known"]) and answer["candidates"][0]["label"] == Path(answer["image"]).parent.name
        for answer in answers
    ]
    assert sum(right[:20]) >= 19, "photographs that were enrolled"
    assert sum(right[20:24]) >= 2, "photographs of them that were not"
    assert [answer["known"] for answer in answers[24:]].count(False) >= 2, "strangers"
