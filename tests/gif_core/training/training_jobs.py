"""Small trainings as jobs: their files, and what comes of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import cv2
import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

from gif_core.runtime import ProcessGroup
from gif_core.tokenization import CodeShape, write_code_table
from gif_core.training import open_checkpoints, run_job
from gif_core.training.worker import prepare
from schemas.training import TrainingConfig, TrainingJob

IMAGES, DIM, BATCH, EPOCHS = 64, 16, 16, 5
STEPS = IMAGES // BATCH * EPOCHS
PROJECT = Path(__file__).parents[3]
ALONE = ProcessGroup(torch.device("cpu"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable[..., Path]) -> Path:
    """As many identities as images: the label tells which image was seen."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    images = rng.integers(0, 255, size=(IMAGES, 14, 14, 3)).astype(np.uint8)
    encoded = [cv2.imencode(".png", cv2.resize(image, (112, 112)))[1].tobytes() for image in images]
    write_shard(folder / "a.arrow", [(row, f"{row}.png", image) for row, image in enumerate(encoded)], IMAGES)
    vectors = rng.normal(size=(IMAGES, DIM)).astype(np.float32)
    save_file(
        {"code_vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}, folder / "vectors.safetensors"
    )
    codes = np.stack([np.arange(IMAGES) // 16, np.arange(IMAGES) // 4 % 4, np.arange(IMAGES) % 4], axis=1)
    identities = {"identity_id": np.arange(IMAGES), "label": [f"p{row}" for row in range(IMAGES)]}
    write_code_table(folder, codes, CodeShape(3, 4), pa.table(identities | {"num_samples": np.ones(IMAGES, np.int32)}))
    return folder


def make_job(
    files: Path, store: Path, settings_of_training: Mapping[str, object] = MappingProxyType({}), **changes: object
) -> TrainingJob:
    settings: dict[str, object] = {"backbone": "iresnet_tiny", "batch_size": BATCH, "epochs": EPOCHS}
    # Small rates: with the default ones rounding errors of 1e-7 grow to 1e-4 within these steps.
    settings |= {"learning_rate": 1e-5, "row_rate": 0.1, **settings_of_training}
    given = {
        "config": TrainingConfig.model_validate(settings),
        "seed": 3,
        "device": "cpu",
        "workers": 1,
        "shards": [str(files / "a.arrow")],
        "held_out": [],
        "codes": str(files / "codes.duckdb"),
        "code_vectors": str(files / "vectors.safetensors"),
        "store": str(store),
        "checkpoints": "checkpoints/training/test",
        "checkpoint_seconds": 1e9,
        "checkpoint_steps": 3,
        "checkpoints_kept": 2,
        "compile": False,
        "gradient_checkpointing": False,
    }
    return TrainingJob.model_validate(given | changes)


def result(job: TrainingJob) -> dict[str, Tensor]:
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == IMAGES // BATCH * job.config.epochs
    return {name: tensor for file in checkpoint.names() for name, tensor in load_file(checkpoint.path(file)).items()}


@pytest.fixture(scope="module")
def undisturbed(
    one_thread: None, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and losses of a training that nobody disturbs."""
    job = make_job(files, tmp_path_factory.mktemp("undisturbed"))
    reports = list(run_job(job, ALONE))
    assert [report.step for report in reports] == list(range(1, STEPS + 1))
    return result(job), [report.metrics["loss"] for report in reports]


def assert_same_weights(
    found: dict[str, Tensor], expected: dict[str, Tensor], job: TrainingJob, *, exactly: bool
) -> None:
    """Bit for bit, or after the same way: the difference is a small part of the way from the first weights."""
    assert found.keys() == expected.keys()
    if exactly:
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        return
    first = prepare(job, ALONE).state
    start = dict([*first.model.named_parameters(), *first.head.named_parameters()])
    if first.head.sharded:
        start["head.safetensorsweight_MD"] = start.pop("weight_MD")
    way = sum(float((expected[name] - parameter.detach()).square().sum()) for name, parameter in start.items())
    apart = sum(float((expected[name] - found[name]).square().sum()) for name in start)
    assert apart < 0.01**2 * way
