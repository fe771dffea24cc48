"""One training step of a head, alone or with a backbone: seconds and memory, measured in a process of its own.

Code vectors and codes of GIF are mapped from sparse files of full size; the rows in use are filled in and unmapped
before the step, which thus has their page faults but reads no disk: they stay in the page cache. Memory is the peak
above that before the head was built, on a GPU what is allocated.
"""

# Shapes: B images, D dimensions.

import copy
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from gif_core.backbones import build_network
from gif_core.benchmarking import HeadStep, draw_labels, size_of_backbone
from gif_core.heads import Head, HeadOutput, PairHead, build_head
from gif_core.reporting import size_of_head
from gif_core.runtime import expect_scattered
from gif_core.tokenization import code_shape
from schemas.errors import GifError
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

SIDE: Final = 112
FLOAT_BYTES: Final = 4
IN_USE: Final = 0.65
"""Share of a network's activations in use at the peak of a step, as measured with iresnet_tiny and iresnet18."""
SECONDS: Final = 2.0
"""Seconds for which a step is repeated."""
GIVES_BACK: Final = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""With these settings glibc returns freed memory to the system at once, so that memory in use is counted; steps take
longer."""


@dataclass(frozen=True)
class HeadKind:
    """A head whose cost is measured."""

    label: str
    config: TrainingConfig

    @property
    def has_codes(self) -> bool:
        """Whether it learns codes: then nothing of it grows with the identities."""
        return self.config.head == "gif"


HEADS: Final = {
    "arcface": HeadKind("FC (ArcFace)", TrainingConfig(head="arcface")),
    "pfc0.3": HeadKind("PFC 0.3", TrainingConfig(head="partial_fc", sample_rate=0.3)),
    "pfc0.1": HeadKind("PFC 0.1", TrainingConfig(head="partial_fc", sample_rate=0.1)),
    "dcq": HeadKind("DCQ", TrainingConfig(head="dcq")),
    "f2c": HeadKind("F²C", TrainingConfig(head="f2c")),
    "virtual_fc": HeadKind("Virtual FC", TrainingConfig(head="virtual_fc")),
    "gif": HeadKind("GIF", TrainingConfig()),
    "mapped": HeadKind("GIF, mapped", TrainingConfig(code_vectors="mapped")),
    "paper": HeadKind("GIF, paper's loss", TrainingConfig(negatives=0)),
}


@dataclass(frozen=True)
class HeadPoint:
    """What is measured: a head at a number of identities."""

    head: str
    identities: int
    batch_size: int = 512
    dimensions: int = 512
    length: int | None = None
    """Of codes; None: by the project's rule."""
    backbone: str | None = None
    """Measured with the head, on images of 112 × 112; None: the head alone."""
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class Measured:
    """The cost of a step."""

    seconds: float
    processor_seconds: float
    bytes: int


def compute_bytes(point: HeadPoint) -> int:
    """The computed peak memory of a step of the head, and of the backbone if there is one."""
    config = HEADS[point.head].config.model_copy(update={"batch_size": point.batch_size})
    shape = code_shape(point.identities, TokenizationConfig(length=point.length))
    held = size_of_head(config, point.identities, shape, point.dimensions).step_bytes(config)
    return held + _compute_backbone_bytes(point)


def _compute_backbone_bytes(point: HeadPoint) -> int:
    """Activations of a batch, and weights, gradients and moments, in fp32."""
    if point.backbone is None:
        return 0
    size = size_of_backbone(point.backbone, point.dimensions)
    return int(IN_USE * point.batch_size * size.activations) + 3 * FLOAT_BYTES * size.parameters


def measure_apart(
    point: HeadPoint, folder: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Measured:
    """Measure a point in a fresh process; sparse files go to `folder`."""
    with tempfile.TemporaryDirectory(dir=folder) as files:
        command = [sys.executable, "-m", __name__, json.dumps(asdict(point)), files]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it was killed, likely for want of memory"])[-1]
        raise GifError(f"{HEADS[point.head].label} with {point.identities:,} identities could not be measured: {last}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure(point: HeadPoint, folder: Path) -> Measured:
    """Measure a point in this process."""
    device = torch.device(point.device)
    if point.threads:
        torch.set_num_threads(point.threads)
    warm_up(point, device)
    before = peak(device)
    step = _Step(point, folder, device)
    step.run(0)
    times: list[tuple[float, float]] = []
    while not times or sum(clock for clock, _ in times) < SECONDS:
        times.append(step.run(1 + len(times)))
    clock, processor = (median(column) for column in zip(*times, strict=True))
    return Measured(clock, processor, peak(device) - before)


def build(point: HeadPoint, folder: Path) -> Head:
    """Build the head; those on codes map sparse files."""
    config, identities, dim = HEADS[point.head].config, point.identities, point.dimensions
    if not HEADS[point.head].has_codes:
        return build_head(
            config, np.empty((identities, 0), np.int32), np.broadcast_to(np.float32(0), (identities, dim))
        )
    shape = code_shape(identities, TokenizationConfig(length=point.length))
    codes = np.memmap(folder / "codes", np.int32, "w+", shape=(identities, shape.length))
    vectors = expect_scattered(np.memmap(folder / "vectors", np.float32, "w+", shape=(identities, dim)))
    return build_head(config, codes, vectors, num_values=shape.vocab_size)


class _Step:
    """Training steps of a head on new identities each, with a backbone if there is one."""

    def __init__(self, point: HeadPoint, folder: Path, device: torch.device) -> None:
        self.point, self.device, self.rng = point, device, np.random.default_rng(0)
        self.head = build(point, folder).to(device)
        self.network = build_network(point.backbone, point.dimensions).to(device) if point.backbone else None
        needs_average = self.network is not None and isinstance(self.head, PairHead)
        self.average: nn.Module | None = copy.deepcopy(self.network) if needs_average else None
        modules = nn.ModuleList(filter(None, (self.head, self.network)))
        learned = [each for each in modules.parameters() if each.requires_grad]
        # A head without parameters still has a step.
        self.step = HeadStep(self.head, SGD(learned or [torch.zeros(1)], lr=0.1, momentum=0.9, weight_decay=1e-4))

    def run(self, number: int) -> tuple[float, float]:
        """Wall-clock and processor seconds of one step."""
        together = HEADS[self.point.head].config.images_per_identity_of_head
        labels_B = draw_labels(self.rng, self.point.identities, self.point.batch_size, together)
        inputs = self._draw_inputs()
        fill(self.head, labels_B, self.rng, self.point.dimensions)
        wait = _waiter(self.device)
        wait()
        clock, processor = time.perf_counter(), time.process_time()
        self.step.run(labels_B, number, lambda: self._loss(inputs, labels_B))
        wait()
        return time.perf_counter() - clock, time.process_time() - processor

    def _draw_inputs(self) -> Tensor:
        size = self.point.batch_size
        if self.network is None:
            return torch.randn(size, self.point.dimensions, device=self.device, requires_grad=True)
        return torch.randn(size, 3, SIDE, SIDE, device=self.device)

    def _loss(self, inputs: Tensor, labels_B: Tensor) -> Tensor:
        if not isinstance(self.head, PairHead):
            output: HeadOutput = self.head(inputs if self.network is None else self.network(inputs), labels_B)
            return output.loss
        apart = self.head.keys_apart
        queries, others = (inputs[::2], inputs[1::2]) if apart else (inputs, inputs)
        features = queries if self.network is None else self.network(queries)
        with torch.no_grad():
            keys = torch.randn_like(others) if self.average is None else self.average(others)
        return self.head.compare(features, keys, labels_B).loss


def fill(head: Head, labels_B: Tensor, rng: np.random.Generator, dimensions: int) -> None:
    """Write codes and unit vectors of these identities, and unmap their pages, which stay in the page cache."""
    if not hasattr(head, "codes_NL"):
        return
    found: Any = head
    rows, largest = labels_B.numpy(), found.classifiers_LVD.shape[1]
    drawn = rng.standard_normal((len(rows), dimensions), dtype=np.float32)
    found.vectors.vectors_MD[rows] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    found.codes_NL[rows] = rng.integers(0, largest, (len(rows), found.codes_NL.shape[1]))
    for mapped in (found.vectors.vectors_MD, found.codes_NL):
        mapped._mmap.madvise(mmap.MADV_DONTNEED)


def peak(device: torch.device) -> int:
    """Peak memory of this process so far, or of the GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def warm_up(point: HeadPoint, device: torch.device) -> None:
    """Load what the first step of any head loads, and reset the peak."""
    layer = nn.Linear(point.dimensions, point.dimensions, device=device)
    optimizer = SGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    layer(torch.randn(point.batch_size, point.dimensions, device=device)).relu().exp().sum().backward()
    optimizer.step()
    reset_peak(device)


def reset_peak(device: torch.device) -> None:
    """Let the peak begin at what is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text("5")


def _waiter(device: torch.device) -> Callable[[], None]:
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


if __name__ == "__main__":
    given = HeadPoint(**json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps(asdict(measure(given, Path(sys.argv[2])))) + "\n")
