"""A change that is not meant to alter the numbers of a training does not: fifty steps against a stored curve.

After a change that is meant to: `GIF_WRITE_GOLDEN=1 pytest tests/gif_core/test_golden_training.py` writes it anew.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from gif_core.faces import Faces
from gif_core.process_group import ProcessGroup
from gif_core.training import begin_training
from schemas.training import TrainingConfig

GOLDEN = Path(__file__).with_name("golden_training.json")
IDENTITIES, SAMPLES, DIM = 40, 5, 32
HEADS = {
    "gif": {},
    "gif as the paper has it": {"negatives": 0},
    "arcface": {"head": "arcface", "scale": 8},
    "partial_fc": {"head": "partial_fc", "scale": 8},
}


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable[..., Path]) -> Faces:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, size=(IDENTITIES, 7, 7, 3)).repeat(SAMPLES, axis=0)
    noisy = np.clip(coarse + rng.integers(-40, 40, size=coarse.shape), 0, 255).astype(np.uint8)
    encoded = [cv2.imencode(".png", np.repeat(np.repeat(image, 16, 0), 16, 1))[1].tobytes() for image in noisy]
    rows = [(number // SAMPLES, f"{number}.png", image) for number, image in enumerate(encoded)]
    return Faces([write_shard(tmp_path_factory.mktemp("faces") / "a.arrow", rows, len(rows))])


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("head", HEADS)
def test_fifty_steps_have_the_stored_losses(faces: Faces, head: str) -> None:
    losses = train(faces, HEADS[head])
    assert len(losses) == 50
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if "GIF_WRITE_GOLDEN" in os.environ:
        GOLDEN.write_text(json.dumps(stored | {head: losses}, indent=1))
        pytest.skip("written anew")
    assert losses == pytest.approx(stored[head], rel=1e-5)


def train(faces: Faces, settings: dict[str, object]) -> list[float]:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(IDENTITIES, DIM)).astype(np.float32)
    codes = np.stack([np.arange(IDENTITIES) // 16, np.arange(IDENTITIES) // 4 % 4, np.arange(IDENTITIES) % 4], axis=1)
    given = {"backbone": "iresnet_tiny", "batch_size": 40, "epochs": 10, "learning_rate": 1e-5, "warmup_steps": 5}
    training = begin_training(
        faces,
        codes,
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        TrainingConfig.model_validate(given | settings),
        seed=7,
        group=ProcessGroup(torch.device("cpu")),
    )
    return [report.metrics["loss"] for report in training.run()]
