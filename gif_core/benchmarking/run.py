"""One benchmark by its name."""

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

import torch

from gif_core.benchmarking.setting import Setting
from gif_core.runtime import pick_device
from schemas.benchmarks import BENCHMARKS, BenchmarkName, BenchmarkResult
from schemas.errors import GifError
from schemas.run import RunConfig

ON_CORES: Final = ("decode", "ingest", "tokenize")
"""Benchmarks that use no GPU."""


def run_benchmark(
    name: str,
    config: RunConfig,
    *,
    device: str = "auto",
    seconds: float = 6.0,
    identities: int = 10_000,
    batch: int | None = None,
    command: tuple[str, ...] = (),
) -> BenchmarkResult:
    """Measure one part of the pipeline with the settings of a run, on synthetic inputs in a temporary folder.

    `command` is the command `gif`, for the benchmark `start`, which runs the pipeline.
    """
    known = next((each for each in BENCHMARKS if each == name), None)
    if known is None:
        raise GifError(f"there is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    chosen = _measurable(pick_device("cpu" if known in ON_CORES else device))
    with tempfile.TemporaryDirectory(prefix="gif-bench-") as folder:
        return find_benchmark(known)(Setting(config, chosen, Path(folder), seconds, identities, batch, command))


def find_benchmark(name: BenchmarkName) -> Callable[[Setting], BenchmarkResult]:
    """The function of a benchmark; its module is imported now."""
    found: Callable[[Setting], BenchmarkResult] = getattr(
        import_module(f"gif_core.benchmarking.{name}"), f"bench_{name}"
    )
    return found


def _measurable(device: torch.device) -> torch.device:
    """The device with its number, by which its memory and its name are asked for."""
    if device.type == "mps":
        raise GifError("the queue of an Apple GPU (mps) cannot be timed by phases: measure with --device cpu")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device
