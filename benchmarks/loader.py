"""The training loader against a bare OpenCV decode loop in as many processes.

python benchmarks/loader.py [--images 3000] [--workers 2] [--batch 512] [--rounds 15]

The reference decodes the same bytes from memory and throws the pixels away. The loader reads them from shards in a
random order, decodes, mirrors, and puts batches together. Both are measured in turn, in one run, each when it is
going steadily; the ratio of a round is taken against the reference just before and just after.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import pyarrow as pa

from gif_core.images import Faces
from gif_core.ingestion import SCHEMA
from gif_core.synthetic import draw_jpeg
from gif_core.training.data import batches_ahead, load_batches, plan_batches
from schemas.training import AugmentationConfig, TrainingConfig

PASSES = 3
"""Passes over all images per measurement."""
ALL = AugmentationConfig(low_resolution=1.0, blur=1.0, hsv=1.0, grey=1.0)


def write_shard(path: Path, images: list[bytes]) -> None:
    """Write faces in record batches of a thousand."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for start in range(0, len(images), 1000):
            rows = range(start, min(start + 1000, len(images)))
            columns = [list(rows), [f"{row}.jpg" for row in rows], [images[row] for row in rows]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))


def decode_forever(images: list[bytes], barrier: Barrier) -> None:
    """Decode images in one process of the reference, between two barriers."""
    cv2.setNumThreads(1)
    while True:
        barrier.wait()
        for _ in range(PASSES):
            for image in images:
                cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
        barrier.wait()


@contextmanager
def bare_decoding(images: list[bytes], workers: int) -> Iterator[Callable[[], float]]:
    """Measures images per second of the reference, whose processes are reused."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(workers + 1)
    shares = [images[rank::workers] for rank in range(workers)]
    processes = [context.Process(target=decode_forever, args=(share, barrier), daemon=True) for share in shares]

    def measure() -> float:
        barrier.wait()
        started = time.perf_counter()
        barrier.wait()
        return PASSES * len(images) / (time.perf_counter() - started)

    for process in processes:
        process.start()
    measure()
    yield measure
    for process in processes:
        process.kill()


@contextmanager
def loading(faces: Faces, config: TrainingConfig, workers: int) -> Iterator[Callable[[], float]]:
    """Measures images per second of a loader that never ends."""
    plans = plan_batches(len(faces), config.model_copy(update={"epochs": 10**9}), seed=0)
    count = PASSES * len(faces) // config.batch_size
    with closing(load_batches(faces, plans, workers=workers)) as batches:

        def measure() -> float:
            for _ in range(batches_ahead(config.batch_size, workers) + 2):
                next(batches)  # skip what was decoded while the reference ran
            started = time.perf_counter()
            for _ in range(count):
                next(batches)
            return count * config.batch_size / (time.perf_counter() - started)

        yield measure


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    images = [draw_jpeg(0, number // 10, number % 10) for number in range(given.images)]
    config = TrainingConfig(batch_size=given.batch)
    variants = {"loader": config, "augmented": config.model_copy(update={"augmentation": ALL})}
    ratios: dict[str, list[float]] = {name: [] for name in variants}
    speeds: dict[str, list[float]] = {name: [] for name in ("bare", *variants)}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shard = Path(folder) / "faces-00000.arrow"
        write_shard(shard, images)
        faces = Faces([shard])
        bare = stack.enter_context(bare_decoding(images, given.workers))
        measures = {name: stack.enter_context(loading(faces, variants[name], given.workers)) for name in variants}
        for number in range(given.rounds):
            for name, measure in measures.items():
                before, speed, after = bare(), measure(), bare()
                ratios[name].append(2 * speed / (before + after))
                speeds[name].append(speed)
                speeds["bare"] += [before, after]
            print(f"round {number}: " + ", ".join(f"{name} / bare {ratios[name][-1]:.3f}" for name in variants))
    metrics = {f"{name}_over_bare": round(median(ratios[name]), 3) for name in variants}
    metrics |= {f"{name}_images_per_second": round(median(speeds[name])) for name in speeds}
    for name, metric in metrics.items():
        print(f"{name}: {metric}")
    print(json.dumps({"benchmark": "loader", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
