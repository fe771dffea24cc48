"""The embedding stage against the encoder's bare forward pass; its memory; its runners.

    python benchmarks/embedding.py throughput [--model ViT-B-32] [--images 600] [--rounds 5]
    python benchmarks/embedding.py memory [--identities 2000 20000]
    python benchmarks/embedding.py runners [--identities 2000] [--parts 8]

throughput: images per second of the stage's work, from JPEG files in mapped shards to sums of features, over those of
the network alone on batches that lie preprocessed in memory: the faster of torch's own threads and of one batch per
core. Weights are random but for tiny-clip: speed only. memory: the peak of `gif run --only embedding`. runners: seconds
of the stage on Ray and Dask clusters of this machine over those on a process pool, and whether the bytes are the same.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import yaml

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.embedding import CPU_BATCH, Part, embed_part
from gif_core.embedding.encoders import build_encoder
from gif_core.images import Faces
from gif_core.ingestion import SCHEMA
from gif_core.synthetic import draw_jpeg
from schemas.embedding import EmbeddingConfig

DISTINCT = 300
MAGIC = 0xCED7230A
GIF = str(Path(sys.executable).with_name("gif"))
RUNNERS = ("processes", "dask", "ray")


def drawn(count: int) -> list[bytes]:
    """Return images of a few hundred synthetic faces, repeated."""
    images = [draw_jpeg(0, identity, 0) for identity in range(min(count, DISTINCT))]
    return [images[number % len(images)] for number in range(count)]


def write_shard(path: Path, images: list[bytes]) -> None:
    """Write faces in record batches of a thousand, ten per identity."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for start in range(0, len(images), 1000):
            rows = range(start, min(start + 1000, len(images)))
            columns = [[row // 10 for row in rows], [f"{row}.jpg" for row in rows], [images[row] for row in rows]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))


def rate(work: Callable[[], object], images: int) -> float:
    """Return the images per second of a call."""
    start = time.perf_counter()
    work()
    return images / (time.perf_counter() - start)


def bare_forward(encoder: Any, pixels: torch.Tensor, workers: int) -> Callable[[], None]:
    """Run the network alone, one batch per core."""

    def forward(batch: torch.Tensor) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            encoder.tower(batch)

    def run() -> None:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(forward, pixels.split(CPU_BATCH)))
        torch.set_num_threads(workers)

    return run


def bare_forward_of_torch(encoder: Any, pixels: torch.Tensor) -> Callable[[], None]:
    """Run the network alone, with torch's own threads."""

    def run() -> None:
        with torch.inference_mode():
            for batch in pixels.split(256):
                encoder.tower(batch)

    return run


def throughput(given: argparse.Namespace) -> dict[str, Any]:
    """Measure the stage and the bare forward pass in turn."""
    pretrained = "synthetic" if given.model == "tiny-clip" else "random"
    encoder = build_encoder(EmbeddingConfig(model=given.model, pretrained=pretrained), torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder, "a.arrow"), drawn(given.images))
        faces = Faces([Path(folder, "a.arrow")])
        pixels = encoder.preprocessing(faces.load(np.arange(given.images)), torch.device("cpu"))
        part, workers = Part("", "", 0, 1), given.workers
        works = {
            "stage": lambda: embed_part(encoder, faces, part, batch_size=256, workers=workers),
            "bare, a batch per core": bare_forward(encoder, pixels, workers),
            "bare, torch's threads": bare_forward_of_torch(encoder, pixels),
        }
        rates: dict[str, list[float]] = {name: [] for name in works}
        for number in range(given.rounds + 1):
            measured = {name: rate(work, given.images) for name, work in works.items()}
            if number:  # the first is to warm up
                print(", ".join(f"{name} {speed:.0f}" for name, speed in measured.items()), "images/s")
                for name, speed in measured.items():
                    rates[name].append(speed)
    bare = np.maximum(rates["bare, a batch per core"], rates["bare, torch's threads"])
    ratio = median((np.array(rates["stage"]) / bare).tolist())
    print(f"stage / bare forward of {given.model} ({pretrained} weights): {ratio:.3f}")
    return {"ratio": round(ratio, 3), "images_per_second": round(median(rates["stage"]))}


def write_source(path: Path, identities: int) -> None:
    """Write two images of each identity as RecordIO."""
    images = drawn(2 * identities)
    with path.open("wb") as file:
        for number, image in enumerate(images):
            data = struct.pack("<IfQQ", 0, number // 2, number, 0) + image
            file.write(struct.pack("<II", MAGIC, len(data)) + data + bytes(-len(data) % 4))


def run_stage(folder: Path, stage: str, *settings: str) -> int:
    """Run `gif run --only stage`; return the peak memory of its process in bytes."""
    command = [GIF, "run", "--config", "run.yaml", "--only", stage]
    command += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024


def prepare(folder: Path, identities: int) -> None:
    """Create a store with the faces of `identities` identities."""
    write_source(folder / "train.rec", identities)
    settings = {
        "preset": "demo",
        "store": str(folder / "store"),
        "ingestion": {"sources": [{"kind": "recordio", "path": str(folder / "train.rec")}], "held_out": 0.0},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    run_stage(folder, "ingestion")


def memory(given: argparse.Namespace) -> dict[str, Any]:
    """Measure the peak memory for few and for many identities."""
    peaks = {}
    for identities in given.identities:
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name), identities)
            peaks[identities] = run_stage(Path(name), "embedding")
            print(f"{identities:,} identities: {peaks[identities] / 2**20:.0f} MiB")
    ratio = max(peaks.values()) / min(peaks.values())
    print(f"the most over the least: {ratio:.3f}")
    return {
        "ratio": round(ratio, 3),
        "peak_mib": {identities: round(peak / 2**20) for identities, peak in peaks.items()},
    }


def runners(given: argparse.Namespace) -> dict[str, Any]:
    """Run the same parts on every runner."""
    seconds, digests = {}, set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.identities)
        size = max(1, round((folder / "train.rec").stat().st_size / 2**20 / given.parts))
        store = ArtifactStore(str(folder / "store"))
        for runner in RUNNERS:
            run_stage(folder, "embedding", f"execution.runner={runner}", f"execution.part_megabytes={size}")
            done = list_runs(store)[0].stages["embedding"]
            artifact = store.open(store.ref("embedding", done.key))
            seconds[runner] = done.seconds
            digests.add((done.key, artifact.stored("vectors.parquet").sha256))
            store.remove(artifact.ref)
            store.storage.remove("parts")
            print(f"{runner}: {done.seconds:.1f} s, vectors {artifact.stored('vectors.parquet').sha256[:12]}")
    same = len(digests) == 1
    print(f"the same key and bytes on all: {same}")
    ratios = {runner: round(seconds[runner] / seconds["processes"], 2) for runner in RUNNERS}
    return {"same_bytes": same, "seconds_over_processes": ratios}


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    speed = commands.add_parser("throughput")
    speed.add_argument("--model", default="ViT-B-32")
    speed.add_argument("--images", type=int, default=600)
    speed.add_argument("--rounds", type=int, default=5)
    speed.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    peak = commands.add_parser("memory")
    peak.add_argument("--identities", type=int, nargs="+", default=[2000, 20_000])
    engines = commands.add_parser("runners")
    engines.add_argument("--identities", type=int, default=2000)
    engines.add_argument("--parts", type=int, default=8)
    given = parser.parse_args()
    metrics = {"throughput": throughput, "memory": memory, "runners": runners}[given.what](given)
    print(json.dumps({"benchmark": "embedding", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
