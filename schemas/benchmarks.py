"""What `gif bench` measures, as it prints and stores it."""

from datetime import datetime
from typing import Final, Literal, get_args

from pydantic import Field

from schemas.base import Stored

BenchmarkName = Literal["train", "head", "embed", "separate", "decode", "ingest", "tokenize", "evaluate", "start"]
BENCHMARKS: Final[tuple[BenchmarkName, ...]] = get_args(BenchmarkName)


class BenchmarkResult(Stored):
    """One measurement of one part of the pipeline on one device."""

    name: BenchmarkName
    device: str
    """`cpu` or `cuda`."""
    hardware: str
    """Name of the GPU, or number of cores and name of the processor."""
    subject: str
    """What was measured, such as `iresnet_tiny fp32`; the same at the same sizes replaces an older figure."""
    settings: dict[str, float | int | str]
    """The sizes at which it was measured."""
    items: str = "images"
    """What `per_second` counts."""
    per_second: float = Field(gt=0)
    share: float | None = None
    """Speed as a share of `reference`, measured in the same run."""
    reference: str = ""
    flops_per_second: float | None = None
    """Floating-point operations that the network or the products need, per second."""
    peak_flops: float | None = None
    """What the device could do at most."""
    peak_source: str = ""
    """Where the peak is from: data sheet or measured product."""
    peak_memory: int | None = None
    """Bytes: allocated on a GPU; resident memory of the process and its descendants on a CPU."""
    host_syncs: int | None = None
    """How often the host waits for the GPU in a steady step; None on a CPU, which has no queue to wait for."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of a step by what it does."""
    beside: dict[str, float] = Field(default_factory=dict)
    """Seconds per step of work that goes on beside the step."""
    figures: dict[str, float] = Field(default_factory=dict)
    """Further figures that `gif estimate` uses."""
    measured_at: datetime

    @property
    def utilisation(self) -> float | None:
        """Model FLOPs utilisation: the work that is needed over what the device could do in that time."""
        return self.flops_per_second / self.peak_flops if self.flops_per_second and self.peak_flops else None

    @property
    def key(self) -> str:
        """What a newer measurement replaces."""
        sizes = [f"{name} {self.settings[name]}" for name in ("batch", "identities") if name in self.settings]
        return f"{self.name} {' '.join([self.subject, *sizes])} on {self.device}, {self.hardware}"


class BenchmarkFigures(Stored):
    """All figures of one machine."""

    results: dict[str, BenchmarkResult] = Field(default_factory=dict)
