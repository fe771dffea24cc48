"""Two real processes normalise halves of a batch as one process does the whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

PROJECT = Path(__file__).parents[2]
SHAPES = {"images": (8, 5, 4, 4), "features": (8, 6)}
HALF = """
import sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from test_global_batch_norm import SHAPES, make_layer, run_layer
from gif_core.global_batch_norm import synchronise_batch_norm
from gif_core.process_group import ProcessGroup
rank, folder = int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
group = ProcessGroup(torch.device("cpu"), rank, 2)
for name in SHAPES:
    torch.save(run_layer(synchronise_batch_norm(make_layer(name), group), name, rank, 2), f"{folder}/{name}{rank}.pt")
dist.destroy_process_group()
"""


def make_layer(name: str) -> nn.Module:
    torch.manual_seed(0)
    shape = SHAPES[name]
    layer = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1], eps=1e-5, momentum=0.1).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def run_layer(layer: nn.Module, name: str, rank: int, world: int) -> dict[str, Tensor]:
    """Output, gradients and running statistics after one step, and the output in evaluation."""
    torch.manual_seed(1)
    whole = 3 * torch.randn(SHAPES[name], dtype=torch.float64) + 2
    wanted = torch.randn(SHAPES[name], dtype=torch.float64)
    x = whole.chunk(world)[rank].clone().requires_grad_()
    output = layer(x)
    (output * wanted.chunk(world)[rank]).sum().backward()
    assert x.grad is not None
    gradients = {f"sum of {key}": value.grad for key, value in layer.named_parameters()}
    of_images = {"output": output.detach(), "gradient": x.grad, "evaluated": layer.eval()(whole).chunk(world)[rank]}
    return {key: value.detach() for key, value in (of_images | gradients | dict(layer.named_buffers())).items()}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HALF, str(Path(__file__).parent)]
    started = [subprocess.Popen([*command, str(rank), str(folder)], cwd=PROJECT, env=environment) for rank in range(2)]
    assert [process.wait(120) for process in started] == [0, 0]
    return folder


@pytest.mark.parametrize("name", SHAPES)
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
            torch.testing.assert_close(each, expected, atol=1e-12, rtol=1e-12, msg=key)
