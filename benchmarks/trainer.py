"""The overhead of the trainer over its network, and the speed-up of a second process.

    python benchmarks/trainer.py step [--backbone iresnet18] [--batch 16] [--steps 4] [--rounds 5] [--threads 2]
    python benchmarks/trainer.py processes [--backbone iresnet_tiny] [--batch 64] [--steps 20]

`step`: the trainer with the gif head, the loader that decodes JPEG files, guard rails and metrics, against forward,
backward and SGD step of the bare backbone on one batch that lies in memory; both use the fused SGD. Both in turn, in
one run; a round's ratio is taken against the reference just before and just after, of the time and of the processor's
time, which other programs disturb less. `processes`: two gloo processes on one thread each against
one process on one thread, on the same global batches: the time of a step, and how far the losses are apart.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import torch
from safetensors.numpy import save_file
from torch.optim import SGD

from gif_core.backbones import build_backbone
from gif_core.images import Faces, normalize_pixels
from gif_core.ingestion import SCHEMA
from gif_core.runtime import ProcessGroup, run_module
from gif_core.synthetic import draw_jpeg
from gif_core.tokenization import CodeShape, draw_codes, write_code_table
from gif_core.training import begin_training
from schemas.training import TrainingConfig, TrainingJob

IDENTITIES, DIM = 10_000, 512
SHAPE = CodeShape(4, 10)


def draw_faces(folder: Path, images: int) -> Path:
    """Return faces of identities with one image each."""
    path = folder / "faces.arrow"
    rows = range(images)
    columns = [list(rows), [f"{row}.jpg" for row in rows], [draw_jpeg(0, row, 0) for row in rows]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
    return path


def draw_vectors() -> np.ndarray:
    """Return code vectors of all identities."""
    vectors = np.random.default_rng(0).standard_normal((IDENTITIES, DIM), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def bare_steps(backbone: str, images_BHWC: torch.Tensor) -> Callable[[], None]:
    """Run forward, backward and update of the network alone."""
    model = build_backbone(backbone, DIM).train().to(memory_format=torch.channels_last)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = SGD(learned, lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)
    images_BCHW = normalize_pixels(images_BHWC, torch.device("cpu"))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(images_BCHW).square().mean().backward()
        optimizer.step()

    return step


def seconds_per_step(step: Callable[[], object], steps: int) -> np.ndarray:
    """Return the time per step and that of the processor, without the first one."""
    step()
    started = np.array([time.perf_counter(), time.process_time()])
    for _ in range(steps):
        step()
    return (np.array([time.perf_counter(), time.process_time()]) - started) / steps


def compare_steps(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure the trainer against the bare network."""
    faces = Faces([draw_faces(folder, 8 * given.batch)], workers=1)
    config = TrainingConfig(backbone=given.backbone, batch_size=given.batch, epochs=400, learning_rate=1e-4)
    training = begin_training(
        faces,
        draw_codes(IDENTITIES, SHAPE, seed=0),
        draw_vectors(),
        config,
        seed=0,
        group=ProcessGroup(torch.device("cpu")),
        num_values=SHAPE.vocab_size,
    )
    bare = bare_steps(given.backbone, torch.from_numpy(faces.load(np.arange(given.batch))))
    ratios, before = [], seconds_per_step(bare, given.steps)
    with closing(training.run()) as steps:
        for number in range(given.rounds):
            ours = seconds_per_step(lambda: next(steps), given.steps)
            after = seconds_per_step(bare, given.steps)
            ratios.append(2 * ours / (before + after))
            bare_time, ratio = (before + after) / 2, ratios[-1]
            print(f"round {number}: trainer {ours[0]:.3f} s, bare {bare_time[0]:.3f} s, ratio {ratio[0]:.3f}", end="; ")
            print(f"processor {ours[1]:.3f} s, {bare_time[1]:.3f} s, ratio {ratio[1]:.3f}", flush=True)
            before = after
    by_time, by_cpu = np.array(ratios).T.tolist()
    spread = {"least": round(min(by_time), 3), "most": round(max(by_time), 3)}
    return {"step_ratio": round(median(by_time), 3), **spread, "cpu_ratio": round(median(by_cpu), 3)}


def make_job(given: argparse.Namespace, folder: Path, faces: Path, store: str) -> TrainingJob:
    """Return a job of one epoch with the given number of steps."""
    return TrainingJob(
        config=TrainingConfig(backbone=given.backbone, batch_size=given.batch, epochs=1, learning_rate=1e-5),
        seed=0,
        device="cpu",
        workers=1,
        shards=(str(faces),),
        held_out=(),
        codes=str(folder / "codes.duckdb"),
        code_vectors=str(folder / "vectors.safetensors"),
        store=str(folder / store),
        checkpoints="checkpoints",
        checkpoint_seconds=1e9,
        checkpoint_steps=None,
        checkpoints_kept=1,
        compile=False,
        gradient_checkpointing=False,
    )


def run_processes(job: TrainingJob, folder: Path, processes: int) -> list[dict[str, float]]:
    """Run a job in processes and return the metrics of every step."""
    path = folder / "job.json"
    path.write_text(job.model_dump_json())
    return [report["metrics"] for report in run_module("gif_core.training.worker", [str(path)], processes)]


def compare_processes(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure two processes against one, each on one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    faces = draw_faces(folder, given.batch * given.steps)
    save_file({"code_vectors": draw_vectors()}, folder / "vectors.safetensors")
    identities = {"identity_id": np.arange(IDENTITIES), "label": [str(row) for row in range(IDENTITIES)]}
    table = pa.table(identities | {"num_samples": np.ones(IDENTITIES, np.int32)})
    write_code_table(folder, draw_codes(IDENTITIES, SHAPE, seed=0), SHAPE, table)
    one, two = (run_processes(make_job(given, folder, faces, f"store{n}"), folder, n) for n in (1, 2))
    apart = max(abs(b["loss"] / a["loss"] - 1) for a, b in zip(one, two, strict=True))
    speed = [median(step["images_per_second"] for step in steps[2:]) for steps in (one, two)]
    print(
        f"images a second: one process {speed[0]:.1f}, two {speed[1]:.1f}; losses apart by {apart:.1e} of one at most"
    )
    return {"time_two_over_one": round(speed[0] / speed[1], 3), "largest_relative_loss_difference": apart}


def main() -> None:
    """Measure, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "processes"])
    parser.add_argument("--backbone")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    defaults = {"step": ("iresnet18", 16, 4), "processes": ("iresnet_tiny", 64, 20)}[given.what]
    for name, value in zip(("backbone", "batch", "steps"), defaults, strict=True):
        setattr(given, name, getattr(given, name) or value)
    with tempfile.TemporaryDirectory() as temporary:
        compare = {"step": compare_steps, "processes": compare_processes}[given.what]
        metrics = compare(given, Path(temporary))
    print(
        json.dumps({"benchmark": f"trainer {given.what}", "backbone": given.backbone, "batch": given.batch} | metrics)
    )


if __name__ == "__main__":
    main()
