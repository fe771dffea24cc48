"""Trains every head for some steps on a pretended GPU, and prints what its host waited for in a steady step.

python -m tests.gif_core.training.counting_waits RANK FOLDER     # for ranks 0 and 1
"""

import json
import math
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from gif_core.backbones import outputs
from gif_core.backbones.base import Backbone
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup
from gif_core.training import begin_training, trainer
from gif_core.training.data.loader import Batch
from gif_core.training.step import Stepper, TrainingState
from gif_core.training.trainer import build_state
from schemas.training import TrainingConfig

if TYPE_CHECKING:
    from tests.pretend_gpu import PretendGpu

IDENTITIES, DIM, BATCH = 16, 8, 4
CASES: Final[dict[str, dict[str, Any]]] = {
    "gif": {},
    "gif, few negatives": {"negatives": 4},
    "gif as the paper has it": {"negatives": 0},
    "gif, mapped": {"code_vectors": "mapped"},
    "gif, rows in host memory": {"negatives": 4},
    "gif, mapped, rows in host memory": {"code_vectors": "mapped", "negatives": 4},
    "gif, adamw": {"optimizer": "adamw"},
    "gif, fp16": {"precision": "fp16"},
    "gif, clipped, in parts": {"clip_norm": 1.0, "accumulation": 2},
    "gif, images of others": {"sample_negatives": 12},
    "cosface": {"head": "cosface", "scale": 8},
    "arcface": {"head": "arcface", "scale": 8},
    "adaface": {"head": "adaface", "scale": 8},
    "partial_fc": {"head": "partial_fc", "scale": 8},
    "partial_fc, adamw, images of others": {"head": "partial_fc", "optimizer": "adamw", "sample_negatives": 12},
    "curricularface": {"head": "curricularface", "scale": 8},
    "magface": {"head": "magface", "scale": 8},
    "broadface": {"head": "broadface", "scale": 8, "queue_size": 12},
    "groupface": {"head": "groupface", "scale": 8, "groups": 4},
    "dul": {"head": "dul", "scale": 8},
    "virtual_fc": {"head": "virtual_fc", "scale": 8, "anchors": 8},
    "dcq": {"head": "dcq", "scale": 8, "queue_size": 8},
    "f2c": {"head": "f2c", "scale": 8, "queue_size": 8},
}

SHARED_CASES: Final = (
    "gif",
    "gif as the paper has it",
    "gif, rows in host memory",
    "gif, clipped, in parts",
    "gif, images of others",
    "adaface",
    "partial_fc, adamw, images of others",
)
"""Those of two processes, which together have all messages that heads and trainer send."""

WARM_UP: Final = {1: 1, 2: 2}
"""Steps before the steady one, by the number of processes: PyTorch arranges the messages of two in the second step."""


class SmallNetwork(Backbone):
    """A network of few layers, with batch normalisation: the steps of many heads are to take no time."""

    def __init__(self, dim: int) -> None:
        """Features of so many dimensions."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 16, stride=16), nn.BatchNorm2d(4), nn.PReLU(4), nn.Flatten(), nn.Linear(4 * 7 * 7, dim)
        )
        self.last = nn.BatchNorm1d(dim)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """Features."""
        return cast(torch.Tensor, self.last(self.layers(images_BCHW)))


def make_config(settings: dict[str, Any]) -> TrainingConfig:
    """A short training of the smallest network."""
    given = {"backbone": "iresnet_tiny", "batch_size": BATCH, "epochs": 1, "learning_rate": 1e-5}
    return TrainingConfig.model_validate(given | settings)


def make_identities() -> tuple[np.ndarray, np.ndarray]:
    """Codes and code vectors."""
    vectors = np.random.default_rng(1).standard_normal((IDENTITIES, DIM), np.float32)
    codes = np.stack([np.arange(IDENTITIES) // 4, np.arange(IDENTITIES) % 4], axis=1)
    return codes, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def draw_batch(step: int, group: ProcessGroup) -> Batch:
    """The share of a process in the images of a step, which a GPU copies from pinned memory."""
    rng = np.random.default_rng(step)
    images = torch.from_numpy(rng.integers(0, 255, (BATCH, 112, 112, 3), np.uint8)).chunk(group.size)[group.rank]
    pairs = rng.permutation(IDENTITIES)[: BATCH // 2].repeat(2)
    labels = torch.from_numpy(pairs).chunk(group.size)[group.rank]
    if group.device.type == "cpu":
        return Batch(0, images, labels)
    return Batch(0, images.pin_memory(), labels.pin_memory())


def train(case: str, group: ProcessGroup, gpu: "PretendGpu | None" = None) -> dict[str, Any]:
    """Losses of some steps, waits in the last, and what one more changes whose images are infinitely bright."""
    config, memory = make_config(CASES[case]), 0.0 if "in host memory" in case else None
    with patch.object(outputs, "build_backbone", lambda _, dim, **__: SmallNetwork(dim)):
        state = build_state(*make_identities(), config, seed=7, group=group, code_vector_memory=memory)
    stepper, losses, waits = Stepper(state, config, group, seed=7, steps=9), [], {}
    for step in range(WARM_UP[group.size] + 1):
        batch, following = draw_batch(step, group), draw_batch(step + 1, group)
        if gpu is not None:
            gpu.waits.clear()
            stepper.prepare(following)
        stepper.take(batch)
        group.any(False)
        waits = dict(gpu.waits) if gpu is not None else {}
        losses.append(stepper.collect()[0]["loss"])
    before = snapshot(state)
    state.model.register_forward_pre_hook(lambda _, images: images[0] * math.inf)
    stepper.take(following)
    after, metrics = snapshot(state), stepper.collect()[0]
    changed = [name for name in before if not np.array_equal(before[name], after[name])]
    return {"losses": losses, "waits": waits, "skipped": metrics["skipped"], "changed": changed}


def snapshot(state: TrainingState) -> dict[str, np.ndarray]:
    """Weights, buffers and the optimizer's memory, but the number of steps."""
    named = {**state.model.state_dict(), **{f"head.{name}": value for name, value in state.head.state_dict().items()}}
    for number, memory in enumerate(state.optimizer.state.values()):
        named |= {f"{number}/{what}": value for what, value in memory.items()}
    return {name: value.detach().cpu().numpy().copy() for name, value in named.items()}


def train_with_loader(folder: Path, group: ProcessGroup, gpu: "PretendGpu") -> dict[str, Any]:
    """Waits in the third of four steps whose images come from files."""
    trainer.MOST_REPORTS = 1  # type: ignore[misc]
    training = begin_training(Faces([folder / "a.arrow"]), *make_identities(), make_config({}), seed=7, group=group)
    waits: dict[str, int] = {}

    def end_step() -> bool:
        if training.state.step == 2:
            gpu.waits.clear()
        if training.state.step == 3:
            waits.update(gpu.waits)
        return group.any(False)[0]

    with closing(training.run(end_step)) as reports:
        (report,) = reports
    return {"losses": [report.metrics["loss"]], "waits": waits, "skipped": report.metrics["skipped"], "changed": []}


def main(rank: int, folder: Path) -> None:
    """Every other case alone, then some together with the other process; prints a line of JSON."""
    from tests.pretend_gpu import GPU, pretended_gpu

    with pretended_gpu() as gpu:
        alone = ProcessGroup(GPU)
        found = {"alone": {case: train(case, alone, gpu) for case in list(CASES)[rank::2]}}
        if rank == 0:
            found["alone"]["loader"] = train_with_loader(folder, alone, gpu)
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
        group = ProcessGroup(GPU, rank, 2)
        found["together"] = {case: train(case, group, gpu) for case in SHARED_CASES}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
