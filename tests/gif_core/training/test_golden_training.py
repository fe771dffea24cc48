"""A change that is not meant to alter the numbers of a training does not: its steps against a stored curve of fifty.

To rewrite it: `GIF_WRITE_GOLDEN=1 pytest -m slow tests/gif_core/training/test_golden_training.py`.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from gif_core.images import Faces
from gif_core.runtime import ProcessGroup
from gif_core.training import begin_training
from schemas.training import TrainingConfig

GOLDEN = Path(__file__).with_name("golden_training.json")
IDENTITIES, SAMPLES, DIM = 40, 5, 32
REGULARISED: dict[str, object] = {"learning_rate": 1e-3, "weight_decay": 0.5, "momentum": 0.8, "clip_norm": 2.0}
"""Settings of which each shows in the losses."""
STEPS, FEW_STEPS = 50, 12
ROUNDING = 1e-7
"""Relative size of a rounding of fp32."""
CASES: dict[str, dict[str, object]] = {
    "gif": {},
    "gif with all of the gradient of its codes": {"code_gradient": 1},
    "gif as the paper has it": {"negatives": 0},
    "gif with mapped code vectors": {"code_vectors": "mapped", "code_gradient": 1},
    "gif with few living code vectors of many": {"negatives": 4, "code_gradient": 1},
    "gif with negatives from other images": {"sample_negatives": 64, "code_gradient": 1},
    "cosface from code vectors": {"head": "cosface", "scale": 8, "rows_from": "code_vectors"},
    "arcface": {"head": "arcface", "scale": 8},
    "partial_fc": {"head": "partial_fc", "scale": 8},
    "gif with weight decay, momentum and clipping": REGULARISED | {"code_gradient": 1},
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
@pytest.mark.parametrize("case", CASES)
def test_the_first_steps_have_the_stored_losses(faces: Faces, case: str) -> None:
    losses = train(faces, CASES[case], FEW_STEPS)
    assert losses == pytest.approx(json.loads(GOLDEN.read_text())[case][:FEW_STEPS], rel=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_have_the_stored_losses_but_for_what_rounding_grows_to(faces: Faces, case: str) -> None:
    """Another processor rounds otherwise, and training enlarges that: by how much, a disturbed training shows."""
    losses = train(faces, CASES[case])
    assert len(losses) == STEPS
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if "GIF_WRITE_GOLDEN" in os.environ:
        GOLDEN.write_text(json.dumps(stored | {case: losses}, indent=1))
        pytest.skip("rewritten")
    grown = np.maximum.accumulate(np.abs(np.divide(train(faces, CASES[case], disturbance=ROUNDING), losses) - 1))
    assert grown[-1] < 1e-3, "a curve that rounding changes by more tells nothing"
    apart = np.abs(np.divide(losses, stored[case]) - 1)
    assert (apart <= np.maximum(1e-5, 3 * grown)).all(), (apart, grown)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_stored_losses_tell_other_weight_decay_momentum_and_clipping(faces: Faces) -> None:
    """By ten times what they may be apart, already in ten steps."""
    short = REGULARISED | {"epochs": 2}
    losses = train(faces, short)
    for change in ({"weight_decay": 0.25}, {"momentum": 0.75}, {"clip_norm": 2.2}):
        assert train(faces, short | change) != pytest.approx(losses, rel=1e-4), change


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_a_compiled_network_has_them_too(
    faces: Faces, monkeypatch: pytest.MonkeyPatch, gradient_checkpointing: bool
) -> None:
    """By all that a compiler does but writing machine code, which alone rounds otherwise."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    losses = train(faces, {}, FEW_STEPS, compile=True, gradient_checkpointing=gradient_checkpointing)
    assert losses == pytest.approx(json.loads(GOLDEN.read_text())["gif"][:FEW_STEPS], rel=1e-5)


def train(
    faces: Faces, settings: dict[str, object], steps: int = STEPS, *, disturbance: float = 0.0, **execution: bool
) -> list[float]:
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
        **execution,
    )
    if disturbance:
        with torch.no_grad():
            for weights in training.state.model.parameters():
                weights *= 1 + disturbance * torch.randn(weights.shape, generator=torch.Generator().manual_seed(0))
    return [report.metrics["loss"] for report in islice(training.run(), steps)]
