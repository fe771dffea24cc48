"""What is estimated, and an estimate of one stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gif_core.estimation.machine import Machine, Rate
from gif_core.estimation.networks import size_of_encoder
from gif_core.estimation.scale import Scale
from schemas.run import RunConfig
from schemas.stages import StageName

FLOAT: Final = 4
PROCESS: Final = 0.6e9
"""Bytes of a process with PyTorch."""
CONTEXT: Final = 1.5e9
"""Bytes that CUDA and cuDNN take of a GPU."""


@dataclass(frozen=True)
class StageCost:
    """An estimate of one stage."""

    stage: StageName
    reads: float
    """Bytes."""
    writes: float
    """Bytes."""
    host_memory: float
    """Bytes of all its processes on one machine."""
    device_memory: float
    """Bytes of one GPU; 0 on a CPU."""
    seconds: float
    limit: str
    """What takes that long."""
    source: str
    """Where the rate is from."""


@dataclass(frozen=True)
class Case:
    """What is estimated."""

    config: RunConfig
    scale: Scale
    machine: Machine

    @property
    def dim(self) -> int:
        """Dimensions of code vectors and features."""
        return self.config.separation.dimension or size_of_encoder(self.config.embedding).dimension

    @property
    def faces(self) -> float:
        """Bytes of the images that are trained on."""
        return self.scale.trained_images * self.scale.image_bytes

    @property
    def vectors(self) -> float:
        """Bytes of one vector of every identity."""
        return float(self.scale.trained_identities * self.dim * FLOAT)

    def on_device(self, size: float) -> float:
        """Bytes on a GPU; none without one."""
        return size + CONTEXT if self.machine.gpus else 0.0


def make_cost(
    stage: StageName,
    times: Mapping[str, float],
    rate: Rate,
    reads: float,
    writes: float,
    memory: float,
    device_memory: float = 0.0,
) -> StageCost:
    """The longest of what goes on at once."""
    limit = max(times, key=lambda name: times[name])
    return StageCost(stage, reads, writes, memory, device_memory, times[limit], limit, rate.source)
