"""Two real processes normalise halves of a batch as one process does the whole, and train one network."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gif_core.runtime import ProcessGroup
from gif_core.training.data.loader import Batch
from gif_core.training.global_batch_norm import synchronise_batch_norm
from gif_core.training.step import Stepper
from gif_core.training.trainer import build_state
from schemas.training import TrainingConfig

PROJECT = Path(__file__).parents[3]
LAYERS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "images": ((8, 5, 4, 4), torch.float64),
    "features": ((8, 6), torch.float64),
    "images in bf16": ((8, 5, 4, 4), torch.bfloat16),
    "features in fp16": ((8, 6), torch.float16),
}
CLOSE: dict[torch.dtype, dict[str, float]] = {
    torch.float64: {"atol": 1e-12, "rtol": 1e-12},
    torch.bfloat16: {"atol": 0.05, "rtol": 0.02},
    torch.float16: {"atol": 0.01, "rtol": 0.005},
}
HALF = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from test_two_processes import LAYERS, run_layer_of, train_in_parts, train_living
from gif_core.runtime.process_group import join_processes, leave_processes
rank, folder = int(sys.argv[2]), sys.argv[3]
group = join_processes("cpu", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
for name in LAYERS:
    torch.save(run_layer_of(name, group), f"{folder}/{name}{rank}.pt")
torch.save(train_in_parts(group), f"{folder}/trained{rank}.pt")
torch.save(train_living(group), f"{folder}/living{rank}.pt")
leave_processes()
"""


APART = """
import sys
from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.checkpoints import Checkpoints
from gif_core.runtime.process_group import join_processes, leave_processes
from gif_core.artifacts import check_shared
from schemas.errors import GifError
rank, folder, store = int(sys.argv[2]), sys.argv[3], sys.argv[4]
group = join_processes("cpu", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
try:
    check_shared(Checkpoints(ArtifactStore(f"{folder}/{store.format(rank=rank)}"), "checkpoints/training/test"), group)
except GifError as error:
    sys.exit(str(error))
finally:
    leave_processes()
"""


def make_layer(name: str) -> nn.Module:
    torch.manual_seed(0)
    shape, kind = LAYERS[name]
    layer = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1], eps=1e-5, momentum=0.1)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer.double() if kind == torch.float64 else layer


def run_layer_of(name: str, group: ProcessGroup) -> dict[str, Tensor]:
    return run_layer(synchronise_batch_norm(make_layer(name), group), name, group.rank, group.size)


def run_layer(layer: nn.Module, name: str, rank: int, world: int) -> dict[str, Tensor]:
    """Output, gradients and running statistics after one step, and the output in evaluation."""
    torch.manual_seed(1)
    shape, kind = LAYERS[name]
    whole = (3 * torch.randn(shape, dtype=torch.float64) + 2).to(kind)
    wanted = torch.randn(shape, dtype=torch.float64).to(kind)
    x = whole.chunk(world)[rank].clone().requires_grad_()
    output = layer(x)
    (output * wanted.chunk(world)[rank]).sum().backward()
    assert x.grad is not None
    gradients = {f"sum of {key}": value.grad for key, value in layer.named_parameters()}
    of_images = {"output": output.detach(), "gradient": x.grad, "evaluated": layer.eval()(whole).chunk(world)[rank]}
    return {key: value.detach() for key, value in (of_images | gradients | dict(layer.named_buffers())).items()}


def train_in_parts(group: ProcessGroup) -> dict[str, Tensor]:
    """The weights after a step on nine images of each process, which do not make four parts of one size."""
    codes, vectors = np.arange(18).reshape(-1, 1), np.eye(18, 16, dtype=np.float32) + 0.1
    settings: dict[str, Any] = {"backbone": "iresnet_tiny", "batch_size": 18, "accumulation": 4, "learning_rate": 1e-3}
    config = TrainingConfig(**settings)
    state = build_state(codes, vectors, config, seed=0, group=group)
    images = torch.randint(0, 255, (18, 112, 112, 3), generator=torch.manual_seed(2)).to(torch.uint8)
    share = Batch(0, images.chunk(2)[group.rank], torch.arange(18).chunk(2)[group.rank])
    Stepper(state, config, group, seed=0, steps=2).take(share)
    return {name: parameter.detach() for name, parameter in state.model.named_parameters()}


def train_living(group: ProcessGroup) -> dict[str, Tensor]:
    """Losses, code vectors and the state of their optimizer after steps on different halves of the identities."""
    codes, vectors = np.arange(40).reshape(-1, 1), np.random.default_rng(0).standard_normal((40, 16), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    settings: dict[str, Any] = {"backbone": "iresnet_tiny", "batch_size": 8, "learning_rate": 1e-5, "negatives": 4}
    config = TrainingConfig(**settings, code_vectors="living", row_rate=0.1, sample_negatives=12)
    state = build_state(codes, vectors, config, seed=0, group=group)
    stepper, losses = Stepper(state, config, group, seed=0, steps=9), []
    for step in range(4):
        images = torch.randint(0, 255, (8, 112, 112, 3), generator=torch.manual_seed(step)).to(torch.uint8)
        labels = torch.randperm(40, generator=torch.manual_seed(step))[:8]
        stepper.take(Batch(0, images.chunk(group.size)[group.rank], labels.chunk(group.size)[group.rank]))
        losses.append(stepper.collect()[0]["loss"])
    head = state.head.state_dict()
    return {"losses": torch.tensor(losses), **{name: head[name].clone() for name in state.head.row_tensors()}}


def start_two(script: str, folder: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    return [
        subprocess.Popen(
            [*command, str(rank), str(folder), *arguments],
            cwd=PROJECT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for process in start_two(HALF, folder):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return folder


@pytest.mark.parametrize("name", LAYERS)
def test_halves_of_a_batch_are_normalised_as_the_whole_batch_is(of_two: Path, name: str) -> None:
    parts = [torch.load(of_two / f"{name}{rank}.pt", weights_only=True) for rank in range(2)]
    for key, expected in run_layer(make_layer(name), name, 0, 1).items():
        if key.startswith("sum of "):
            found = [parts[0][key] + parts[1][key]]
        elif key in ("output", "gradient", "evaluated"):
            found = [torch.cat([part[key] for part in parts])]
        else:
            found = [part[key] for part in parts]
        for each in found:
            torch.testing.assert_close(each, expected, **CLOSE[LAYERS[name][1]], msg=key)


def test_a_batch_in_uneven_parts_leaves_both_processes_with_the_same_weights(of_two: Path) -> None:
    one, other = (torch.load(of_two / f"trained{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_living_code_vectors_and_images_of_others_give_two_processes_the_losses_and_rows_of_one(of_two: Path) -> None:
    one, other = (torch.load(of_two / f"living{rank}.pt", weights_only=True) for rank in range(2))
    alone = train_living(ProcessGroup(torch.device("cpu")))
    assert all(torch.equal(one[name], other[name]) for name in one), "both hold the same rows"
    torch.testing.assert_close(one["losses"], alone["losses"], rtol=1e-4, atol=0)
    moved = (alone["vectors.squares_M"] > 0).sum()
    assert moved > 24, "rows of the batch and of the negatives"
    torch.testing.assert_close(one["vectors.weight_MD"], alone["vectors.weight_MD"], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("store", "code"), [("all identities's", 0), ("of-{rank}", 1)])
def test_machines_that_do_not_share_a_store_are_refused_all_of_them(tmp_path: Path, store: str, code: int) -> None:
    for process in start_two(APART, tmp_path, store):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == code, errors
        assert ("not every machine sees what the first one writes to the store" in errors) == bool(code)
    assert not [path for path in tmp_path.rglob("*") if path.name == "sign"], "nothing of it stays"
