"""Epochs of separation against the two matrix products that a step cannot do without."""

# Shapes: N vectors, D dimensions, B rows of a batch, C rows of a chunk.

import time
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gif_core.benchmarking.clock import seconds_of, seconds_per_call, synchronise
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.peaks import find_peak
from gif_core.benchmarking.setting import Setting, code_dimension
from gif_core.runtime import CHUNK, ShardedRows, unit_rows
from gif_core.separation import SCORED_ROWS, batch_gradient, measure_distances
from gif_core.separation.descent import separate
from schemas.benchmarks import BenchmarkResult
from schemas.separation import SeparationConfig

SIZES: Final = {"cpu": 4096, "cuda": 65_536}
"""Vectors, unless more are asked for."""
COMMON: Final = 1.0
"""Added to all numbers: vectors of encoders have a direction in common, which the closed form takes away."""
EPOCHS: Final = 6
"""Epochs that are measured; where the closed form applies, the first of them is the closed form."""
LEAST: Final = 1e-6
"""Seconds that divide."""


def bench_separate(setting: Setting) -> BenchmarkResult:
    """Code vectors moved per second in an epoch, and what it spends besides its products (Eq. 6)."""
    count, dim = SIZES.get(setting.device.type, SIZES["cpu"]), code_dimension(setting.config)
    never_stops = {"epochs": EPOCHS, "target_gap": None, "least_kept": None}
    config = setting.config.separation.model_copy(update=never_stops)
    generator = torch.Generator().manual_seed(0)
    vectors_ND = unit_rows(torch.randn(count, dim, generator=generator) + COMMON)
    rows = ShardedRows(vectors_ND.to(setting.device))
    batch = min(config.batch_size, count)
    with watched_memory(setting.device) as memory:
        start, closed, epoch = _measure_epochs(rows, config, setting.device)
    gradient, products = _measure_step(rows, batch, config.temperature, setting)
    scored = min(count, SCORED_ROWS)
    distances = seconds_of(lambda: measure_distances(rows.local[:scored]), setting.device)
    batches = count / batch
    work = 4.0 * count * count * dim
    peak, source = find_peak(setting.device, "fp32")
    return setting.result(
        "separate",
        f"{dim} dimensions",
        settings={"vectors": count, "dimension": dim, "batch": batch},
        items="vectors",
        per_second=count / epoch,
        share=products * batches / epoch,
        reference="its two bare matrix products",
        flops_per_second=work / epoch,
        peak_flops=peak,
        peak_source=source,
        peak_memory=memory.peak,
        phases={
            "products": products * batches,
            "potential": max(gradient - products, 0.0) * batches,
            "pull, measures": max(epoch - gradient * batches, 0.0),
        },
        figures={
            "start_seconds": start,
            "closed_form_seconds": closed,
            "epoch_seconds": epoch,
            "vectors": count,
            "distances_per_second": scored * scored / max(distances, LEAST),
        },
    )


def _measure_epochs(rows: ShardedRows, config: SeparationConfig, device: torch.device) -> tuple[float, float, float]:
    """Seconds before the first epoch, of the closed form, and of an epoch that compares all pairs."""
    moments = [time.perf_counter()]
    for _ in separate(rows, config, seed=0):
        synchronise(device)
        moments.append(time.perf_counter())
    start, *epochs = (after - before for before, after in pairwise(moments))
    closed = epochs.pop(0) if config.start_gap is not None and config.recipe != "literal" else 0.0
    return start, closed, sum(epochs) / len(epochs)


def _measure_step(rows: ShardedRows, batch: int, temperature: float, setting: Setting) -> tuple[float, float]:
    """Seconds of the gradient of a batch, and of its bare products."""
    chosen = np.sort(np.random.default_rng(0).choice(rows.total, batch, replace=False))
    batch_B = torch.from_numpy(chosen).to(setting.device)
    batch_BD, seconds = rows.take(batch_B), setting.seconds / 8
    gradient = seconds_per_call(lambda: batch_gradient(rows, batch_B, temperature), setting.device, at_least=seconds)
    return gradient, seconds_per_call(lambda: _bare_products(rows.local, batch_BD), setting.device, at_least=seconds)


def _bare_products(vectors_ND: Tensor, batch_BD: Tensor) -> None:
    buffer, force_BD = batch_BD.new_empty(len(batch_BD) * CHUNK), torch.zeros_like(batch_BD)
    for chunk_CD in torch.split(vectors_ND, CHUNK):
        similarity_BC = buffer[: len(batch_BD) * len(chunk_CD)].view(len(batch_BD), len(chunk_CD))
        torch.mm(batch_BD, chunk_CD.T, out=similarity_BC)
        force_BD.addmm_(similarity_BC, chunk_CD)
