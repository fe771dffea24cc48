"""What checkpoints cost a training that goes on while they travel to a slow S3 server.

python benchmarks/checkpointing.py [--backbone iresnet18] [--batch 16] [--speed 20] [--every 14] [--checkpoints 3]

Starts a SeaweedFS server behind a relay of `--speed` megabytes a second, and trains with a checkpoint every few steps.
The reference is the median step during which no checkpoint was on its way. Compared with it: the step in which a
checkpoint begins, which copies the state; all steps while it is written, hashed and sent; and, with the setting
`background_checkpoints: false`, the step that waits for all of it. The training computes on one thread, so that the
server and the relay, which are elsewhere in earnest, have a core of their own.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.numpy import save_file
from slow_network import slow_network
from store import seaweed
from trainer import IDENTITIES, SHAPE, draw_faces, draw_vectors

from flows.cli.seaweed import BUCKET, free_ports
from gif_core.runtime import ProcessGroup
from gif_core.tokenization import draw_codes, write_code_table
from gif_core.training.checkpointing import Checkpointing
from gif_core.training.worker import open_checkpoints, prepare
from schemas.training import TrainingConfig, TrainingJob


@contextmanager
def slow_server(folder: Path, speed: float) -> Iterator[str]:
    """Start both; yield the address of a store."""
    with seaweed(folder):
        target, (port,) = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]), free_ports(1)
        with slow_network(port, target, speed):
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
            yield f"s3://{BUCKET}/store"


def make_job(given: argparse.Namespace, folder: Path, store: str, *, background: bool) -> TrainingJob:
    """Return a long training with a checkpoint every few steps."""
    return TrainingJob(
        config=TrainingConfig(backbone=given.backbone, batch_size=given.batch, epochs=100, learning_rate=1e-4),
        seed=0,
        device="cpu",
        workers=1,
        shards=(str(folder / "faces.arrow"),),
        held_out=(),
        codes=str(folder / "codes.duckdb"),
        code_vectors=str(folder / "vectors.safetensors"),
        store=store,
        checkpoints=f"background-{background}",
        checkpoint_seconds=1e9,
        checkpoint_steps=given.every,
        checkpoints_kept=1,
        background_checkpoints=background,
        compile=False,
        gradient_checkpointing=False,
    )


def write_inputs(given: argparse.Namespace, folder: Path) -> None:
    """Write faces, codes and code vectors."""
    draw_faces(folder, 8 * given.batch)
    save_file({"code_vectors": draw_vectors()}, folder / "vectors.safetensors")
    identities = {"identity_id": np.arange(IDENTITIES), "label": [str(row) for row in range(IDENTITIES)]}
    table = pa.table(identities | {"num_samples": np.ones(IDENTITIES, np.int32)})
    write_code_table(folder, draw_codes(IDENTITIES, SHAPE, seed=0), SHAPE, table)


def timed_steps(job: TrainingJob, count: int) -> dict[str, list[float]]:
    """Return seconds of so many steps after the first: those that begin a checkpoint, that write one, and the others.

    A step is counted from the report of the one before, after which a checkpoint begins.
    """
    checkpointing = Checkpointing(
        prepare(job, ProcessGroup(torch.device("cpu"))), open_checkpoints(job), job, lambda: False
    )
    writer, times = checkpointing.writer, {"begins": list[float](), "writing": list[float](), "free": list[float]()}

    def under_way() -> bool:
        pending = writer.pending
        return pending is not None and not (pending.commit is not None and pending.commit.done())

    with closing(checkpointing.run()) as reports:
        next(reports)
        for _ in range(count):
            saved, before, started = checkpointing.saved_step, under_way(), time.perf_counter()
            next(reports)
            kind = "begins" if checkpointing.saved_step > saved else "writing" if before or under_way() else "free"
            times[kind].append(time.perf_counter() - started)
    return times


def compare(given: argparse.Namespace, folder: Path, store: str) -> dict[str, Any]:
    """Measure both settings."""
    ours = timed_steps(make_job(given, folder, store, background=True), given.checkpoints * given.every + given.every)
    waits = timed_steps(make_job(given, folder, store, background=False), given.every + 1)
    free = median(ours["free"])
    print(f"steps without a checkpoint: {free:.2f} s ({len(ours['free'])} of them)")
    print("steps in which one begins: " + ", ".join(f"{taken:.2f}" for taken in ours["begins"]))
    print("steps while one is written: " + ", ".join(f"{taken:.2f}" for taken in ours["writing"]))
    print("the step that waits for it: " + ", ".join(f"{taken:.2f}" for taken in waits["begins"]))
    slower = sum(ours["begins"] + ours["writing"]) - free * len(ours["begins"] + ours["writing"])
    return {
        "begins_over_free": round(median(ours["begins"]) / free, 3),
        "writing_over_free": round(mean(ours["begins"] + ours["writing"]) / free, 3),
        "waits_over_free": round(median(waits["begins"]) / median(waits["free"]), 3),
        "seconds_per_checkpoint": round(slower / len(ours["begins"]), 2),
        "steps_while_writing": round(len(ours["writing"]) / len(ours["begins"]), 1),
    }


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="iresnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--speed", type=float, default=20, help="megabytes a second")
    parser.add_argument("--every", type=int, default=14, help="steps from one checkpoint to the next")
    parser.add_argument("--checkpoints", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, slow_server(Path(name) / "s3", given.speed) as store:
        os.environ["GIF_CACHE"] = str(Path(name) / "cache")
        write_inputs(given, Path(name))
        metrics = compare(given, Path(name), store)
    print(json.dumps({"benchmark": "checkpointing", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
