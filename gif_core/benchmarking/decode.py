"""The training loader against bare decoding on the same number of cores, and how many cores a GPU needs."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any, Final

import cv2
import numpy as np
import torch

from gif_core.benchmarking.clock import processor_seconds
from gif_core.benchmarking.inputs import draw_faces, draw_images
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting
from gif_core.images import Faces
from gif_core.training.data import batches_ahead, load_batches, plan_batches
from gif_core.training.data.augmentation import augment, draw_augmentation
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.training import AugmentationConfig, TrainingConfig

IMAGES: Final = 1024
LEAST_BATCH: Final = 256
GPU_RATE: Final = 1500.0
"""Images per second that one GPU trains an IResNet-100 on, by which cores are counted (an A100 in bf16)."""
PATIENCE: Final = 60.0
"""Seconds after which a process that does not answer is an error."""
CPU: Final = torch.device("cpu")
ALL: Final = AugmentationConfig(low_resolution=1.0, blur=1.0, hsv=1.0, grey=1.0)


def bench_decode(setting: Setting) -> BenchmarkResult:
    """Images per second of the loader over those of `cv2.imdecode` in as many processes."""
    workers, batch = setting.config.execution.workers, max(setting.batch or 0, LEAST_BATCH)
    faces = draw_faces(setting.folder, IMAGES, IMAGES, 1)
    config = setting.config.training.model_copy(update={"batch_size": batch, "epochs": 10**9, "head": "gif"})
    with watched_memory(CPU) as memory:
        ratios, rates = [], []
        with bare_decoding(workers) as bare, loading(faces, config, workers) as loader:
            for _ in range(3):
                before, rate, after = (measure(setting.seconds / 9) for measure in (bare, loader, bare))
                rates.append(rate)
                ratios.append(2 * rate / (before + after))
    rate, share = float(np.median(rates)), float(np.median(ratios))
    phases = _phases_of_an_image(faces, setting.seconds / 8)
    per_core = share / phases["decode"]
    return setting.result(
        "decode",
        f"112 × 112 JPEG, {workers} processes",
        settings={"images": IMAGES, "workers": workers, "batch": batch},
        per_second=rate,
        share=share,
        reference=f"bare cv2.imdecode in {workers} processes",
        peak_memory=memory.peak,
        phases=phases,
        figures={
            "per_core": per_core,
            "bare_per_core": 1 / phases["decode"],
            "cores_for_gpu": GPU_RATE / per_core,
            "gpu_images_per_second": GPU_RATE,
            "bytes_per_image": sum(len(faces.content(row)) for row in range(IMAGES)) / IMAGES,
        },
    )


def _phases_of_an_image(faces: Faces, seconds: float) -> dict[str, float]:
    """Processor time of an image: decoding, reading and mirroring, all augmentations; decoding at half the size."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    rows, images_BHWC = np.arange(LEAST_BATCH), np.empty((LEAST_BATCH, *faces.shape), np.uint8)
    encoded = [np.frombuffer(faces.content(row), np.uint8) for row in range(LEAST_BATCH)]
    chosen = draw_augmentation(ALL, LEAST_BATCH, [0])

    def decode(flags: int) -> None:
        for each in encoded:
            cv2.imdecode(each, flags)

    bare = processor_seconds(lambda: decode(cv2.IMREAD_COLOR_RGB), at_least=seconds)
    reduced = processor_seconds(lambda: decode(cv2.IMREAD_REDUCED_COLOR_2), at_least=seconds)
    filled = processor_seconds(lambda: faces.fill(images_BHWC, rows, rows % 2 == 0), at_least=seconds)
    augmented = processor_seconds(lambda: augment(images_BHWC, chosen), at_least=seconds)
    cv2.setNumThreads(threads)
    phases = {"decode": bare, "read and mirror": max(filled - bare, 0.0), "all augmentations": augmented}
    phases["decode, half size"] = reduced
    return {phase: each / LEAST_BATCH for phase, each in phases.items()}


@contextmanager
def loading(faces: Faces, config: TrainingConfig, workers: int) -> Iterator[Callable[[float], float]]:
    """Measures images per second of a loader that never ends."""
    plans = plan_batches(len(faces), config, seed=0)
    with closing(load_batches(faces, plans, workers=workers)) as batches:

        def measure(seconds: float) -> float:
            for _ in range(batches_ahead(config.batch_size, workers) + 2):
                next(batches)  # what was decoded while others were measured
            began, count = time.perf_counter(), 0
            while time.perf_counter() - began < seconds or not count:
                next(batches)
                count += 1
            return count * config.batch_size / (time.perf_counter() - began)

        yield measure


@contextmanager
def bare_decoding(workers: int) -> Iterator[Callable[[float], float]]:
    """Measures images per second of processes that decode from memory and throw the pixels away."""
    context = multiprocessing.get_context("spawn")
    barrier, wanted = context.Barrier(workers + 1), context.Value("d", 0.0)
    counts = context.Array("d", workers)
    given = [(rank, barrier, wanted, counts) for rank in range(workers)]
    processes = [context.Process(target=decode_forever, args=each, daemon=True) for each in given]

    def measure(seconds: float) -> float:
        wanted.value = seconds
        try:
            if not all(process.is_alive() for process in processes):
                raise BrokenBarrierError
            barrier.wait(PATIENCE)
            barrier.wait(PATIENCE + seconds)
        except BrokenBarrierError:
            raise GifError(
                f"a process that decodes has ended, or has not answered for {PATIENCE:g} s: is there memory for "
                f"{workers} of them? Start fewer with --set execution.workers=1"
            ) from None
        return float(np.sum(counts[:]))

    with ExitStack() as ending:
        for process in processes:
            process.start()
            ending.callback(_end, process)
        measure(0.1)
        yield measure


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()


def decode_forever(rank: int, barrier: Barrier, wanted: Any, counts: Any) -> None:
    """One process: between two barriers, decode for as long as is wanted, and note images per second."""
    cv2.setNumThreads(1)
    images = [np.frombuffer(image, np.uint8) for image in draw_images(LEAST_BATCH)]
    while True:
        barrier.wait()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < wanted.value:
            for image in images[:32]:
                cv2.imdecode(image, cv2.IMREAD_COLOR_RGB)
            images = images[32:] + images[:32]
            count += 32
        counts[rank] = count / (time.perf_counter() - began)
        barrier.wait(PATIENCE)
