"""The work of the embedding stage, from JPEG files to sums of features, against the encoder's bare forward pass."""

# Shapes: B images in a batch, H height, W width, C channels, D dimensions.

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gif_core.benchmarking.clock import seconds_of, synchronise
from gif_core.benchmarking.inputs import draw_faces
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.peaks import count_flops, find_peak
from gif_core.benchmarking.setting import Setting, without_weights
from gif_core.embedding import CPU_BATCH, Part, embed_part
from gif_core.embedding.encoders import ImageEncoder, build_encoder
from gif_core.embedding.encoders.precision import autocast
from gif_core.images import Faces
from schemas.benchmarks import BenchmarkResult

FIRST: Final = 64
"""Images from which the number that takes `seconds` is found."""
MOST: Final = 20_000


def bench_embed(setting: Setting) -> BenchmarkResult:
    """Images per second of the stage's work, and where its time goes."""
    config, workers = setting.config.embedding, setting.config.execution.workers
    encoder = build_encoder(without_weights(config), setting.device)
    count = _count_for(encoder, setting)
    faces, batch = draw_faces(setting.folder, count, count, 1), setting.config.execution.encode_batch
    stage = partial(embed_part, encoder, faces, Part("", "", 0, 1), batch_size=batch, workers=workers)
    pixels = encoder.preprocessing(faces.load(np.arange(min(count, 4 * batch))), setting.device)
    bare = [_bare_rate(encoder, pixels, batch, workers, setting.device)]
    with watched_memory(setting.device) as memory:
        seconds = seconds_of(stage, setting.device)
    bare.append(_bare_rate(encoder, pixels, batch, workers, setting.device))
    phases = _measure_phases(encoder, faces, stage, workers)
    peak, source = find_peak(setting.device, "fp32" if setting.device.type == "cpu" else "bf16")
    flops = encoder_flops(encoder)
    return setting.result(
        "embed",
        f"{config.encoder} {config.model}",
        settings={
            "encoder": config.encoder,
            "model": config.model,
            "images": count,
            "batch": batch,
            "workers": workers,
        },
        per_second=count / seconds,
        share=count / seconds / (sum(bare) / 2),
        reference=f"the bare forward pass of {config.model}",
        flops_per_second=flops * count / seconds,
        peak_flops=peak,
        peak_source=source,
        peak_memory=memory.peak,
        phases=phases,
        figures={"bare_per_second": sum(bare) / 2, "flops": flops},
    )


def encoder_flops(encoder: ImageEncoder) -> float:
    """Operations of the forward pass of one image."""
    return count_flops(encoder.tower, encoder.preprocessing.size, encoder.device)


def _count_for(encoder: ImageEncoder, setting: Setting) -> int:
    """How many images take about a third of the time."""
    images = np.zeros((FIRST, *Faces([]).shape), np.uint8)
    encoder.encode(images)
    rate = FIRST / seconds_of(lambda: encoder.encode(images), setting.device)
    return min(max(int(rate * setting.seconds / 3), 2 * FIRST), MOST)


def _bare_rate(encoder: ImageEncoder, pixels: Tensor, batch: int, workers: int, device: torch.device) -> float:
    """Images per second of the network alone in the encoder's precision: a batch per core, or one by one on a GPU."""
    threads, before = workers if device.type == "cpu" else 1, torch.get_num_threads()

    def forward(pixels_BCHW: Tensor) -> None:
        if device.type == "cpu":
            torch.set_num_threads(1)
        with torch.inference_mode(), autocast(device, encoder.precision):
            encoder.tower(pixels_BCHW)

    def run() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(forward, torch.split(pixels, CPU_BATCH if device.type == "cpu" else batch)))

    run()
    seconds = seconds_of(run, device)
    torch.set_num_threads(before)
    return len(pixels) / seconds


def _measure_phases(encoder: ImageEncoder, faces: Faces, stage: Callable[[], Any], workers: int) -> dict[str, float]:
    """Seconds of a thread per batch of the stage, by what it does; the rest is waiting, sums and Python."""
    spent: Counter[str] = Counter()
    with _timed(encoder, faces, spent):
        total = workers * seconds_of(stage, encoder.device)
    batches = max(spent.pop("batches"), 1)
    phases = {phase: spent[phase] / batches for phase in ("decode", "copy", "forward")}
    return phases | {"wait": max(total / batches - sum(phases.values()), 0.0)}


@contextmanager
def _timed(encoder: ImageEncoder, faces: Faces, spent: Counter[str]) -> Iterator[None]:
    """Within the block, add up the time of decoding, preprocessing and the network."""
    fill, preprocess, tower, lock = faces.fill, encoder.preprocessing, encoder.tower, threading.Lock()

    def add(phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            began = time.perf_counter()
            result = work(*given)
            synchronise(encoder.device)
            with lock:
                spent[phase] += time.perf_counter() - began  # type: ignore[assignment]
                spent["batches"] += phase == "forward"
            return result

        return run

    replaced: Any = (faces, encoder)
    replaced[0].fill = add("decode", fill)
    replaced[1].preprocessing, replaced[1].tower = add("copy", preprocess), add("forward", tower)
    try:
        yield
    finally:
        del replaced[0].fill
        replaced[1].preprocessing, replaced[1].tower = preprocess, tower
