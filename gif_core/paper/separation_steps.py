"""One step of separation (Eq. 6): seconds and memory, measured in a process of its own."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

import torch

from gif_core.paper.head_steps import Measured, peak, reset_peak
from gif_core.runtime import ShardedRows, unit_rows
from gif_core.separation import batch_gradient
from schemas.errors import GifError

TEMPERATURE: Final = 2.0
STEPS: Final = 3


@dataclass(frozen=True)
class SeparationPoint:
    """What is measured: so many code vectors on a device."""

    identities: int
    batch_size: int = 2048
    dimensions: int = 512
    device: str = "cpu"

    @property
    def bytes_of_vectors(self) -> int:
        """Memory of H in fp32."""
        return 4 * self.identities * self.dimensions


def measure_apart(point: SeparationPoint) -> Measured:
    """Measure a point in a fresh process; memory is that of H and of what a step adds."""
    command = [sys.executable, "-m", __name__, json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it was killed, likely for want of memory"])[-1]
        raise GifError(f"separation of {point.identities:,} vectors could not be measured: {last}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure(point: SeparationPoint) -> Measured:
    """Measure a point in this process."""
    device = torch.device(point.device)
    torch.mm(torch.randn(256, 256, device=device), torch.randn(256, 256, device=device))
    reset_peak(device)
    before = peak(device)
    generator = torch.Generator(device).manual_seed(0)
    vectors = torch.randn(point.identities, point.dimensions, generator=generator, device=device)
    rows = ShardedRows(vectors)
    rows.change(unit_rows)
    batch_B = torch.randperm(point.identities)[: point.batch_size].sort().values
    times = [_step(rows, batch_B, device) for _ in range(STEPS)]
    clock, processor = (median(column) for column in zip(*times, strict=True))
    return Measured(clock, processor, peak(device) - before)


def _step(rows: ShardedRows, batch_B: torch.Tensor, device: torch.device) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    batch_gradient(rows, batch_B, TEMPERATURE)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - clock, time.process_time() - processor


if __name__ == "__main__":
    given = SeparationPoint(**json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps(asdict(measure(given))) + "\n")
