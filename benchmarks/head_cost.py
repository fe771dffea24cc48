"""What a training head costs against the number of identities: one step on 512 features of 512 dimensions.

    python benchmarks/head_cost.py [--rounds 3] [--limit-gib 12] [--plot head_cost.svg] [--device cuda]
    python benchmarks/head_cost.py --heads gif arcface --identities 100000 1000000

A step is forward, backward and SGD with momentum. Every point is measured in a fresh process, all points in turn, in
every round; points whose step takes more than ten seconds are measured once. The medians over the rounds are reported,
in wall-clock time and in processor time, which other programs affect less. Memory is the peak of a further process
above its memory before the head was built; its allocator returns freed memory at once, so that memory in use is
counted, not memory kept for later. On a GPU it is the allocated memory. Heads with a row per identity stop where their
computed peak exceeds the limit. The code vectors and codes of gif are mapped from sparse files of full size; the rows
in use are filled in and evicted from the page cache before the step. Code length and vocab size follow the project's
rule; at a million identities the code length of 64 million is measured too.
"""

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from log_plots import Curves, draw_page, draw_svg
from torch.optim import SGD

from gif_core.heads import Head, build_head
from gif_core.reporting import size_of_rows
from gif_core.runtime import expect_scattered
from gif_core.tokenization import code_shape
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

BATCH = DIM = 512
WARM_UP = 1
SECONDS = 2.0
"""Seconds for which a point is repeated in its process."""
LONG = 10.0
"""A point whose step takes longer than this many seconds is measured once."""
CODES = {
    "gif": TrainingConfig(),
    "mapped": TrainingConfig(code_vectors="mapped"),
    "paper": TrainingConfig(negatives=0),
}
"""Heads on codes: the project's default, one whose code vectors do not learn by themselves, and the paper's loss."""
HEADS = {
    "arcface": "ArcFace FC",
    "pfc0.3": "PartialFC 0.3",
    "pfc0.1": "PartialFC 0.1",
    "gif": "GIF",
    "mapped": "GIF, mapped",
    "paper": "GIF, paper's loss",
}
IDENTITIES = (10_000, 100_000, 300_000, 1_000_000, 2_000_000, 4_000_000, 16_000_000, 64_000_000)
GPU_BYTES = 12e9
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""With these settings glibc returns freed memory to the system at once; steps take longer."""
MEMORY = ("GiB of memory", "bytes", 2.0**-30)
PANELS = {
    "cpu": (("seconds of a step (processor)", "processor_seconds", 1.0), MEMORY),
    "cuda": (("seconds of a step", "seconds", 1.0), MEMORY),
}
"""What is plotted; other programs affect processor time less than wall-clock time."""


def compute_bytes(name: str, identities: int) -> int:
    """Return the computed peak memory of a step for heads with a row per identity; 0 for others."""
    if name in CODES:
        return 0
    rate = 1.0 if name == "arcface" else float(name.removeprefix("pfc"))
    return size_of_rows(identities, DIM, rate).step_bytes(TrainingConfig(batch_size=BATCH))


def build(name: str, identities: int, length: int | None, folder: Path, device: torch.device) -> Head:
    """Build the head; that of gif maps sparse files."""
    if name not in CODES:
        rate = {} if name == "arcface" else {"sample_rate": float(name.removeprefix("pfc"))}
        config = TrainingConfig(head="partial_fc" if rate else "arcface", **rate)
        return build_head(config, np.empty((identities, 0)), np.broadcast_to(np.float32(0), (identities, DIM))).to(
            device
        )
    shape = code_shape(identities, TokenizationConfig(length=length))
    codes = np.memmap(folder / "codes", np.int32, "w+", shape=(identities, shape.length))
    vectors = expect_scattered(np.memmap(folder / "vectors", np.float32, "w+", shape=(identities, DIM)))
    return build_head(CODES[name], codes, vectors, num_values=shape.vocab_size).to(device)


def fill(head: Head, labels_B: torch.Tensor, rng: np.random.Generator) -> None:
    """Return codes and unit vectors of these identities."""
    if hasattr(head, "codes_NL"):
        rows, largest = labels_B.numpy(), head.classifiers_LVD.shape[1]
        vectors = rng.standard_normal((len(rows), DIM), dtype=np.float32)
        head.vectors.vectors_MD[rows] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        head.codes_NL[rows] = rng.integers(0, largest, (len(rows), head.codes_NL.shape[1]))
        for mapped in (head.vectors.vectors_MD, head.codes_NL):
            mapped._mmap.madvise(mmap.MADV_DONTNEED)


def peak(device: torch.device) -> int:
    """Return the peak memory of this process so far, or of the GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def warm_up(device: torch.device) -> None:
    """Load what the first step of any head loads, and reset the peak."""
    layer = torch.nn.Linear(DIM, DIM, device=device)
    optimizer = SGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    layer(torch.randn(BATCH, DIM, device=device)).relu().exp().sum().backward()
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text("5")


def make_step(head: Head, identities: int, device: torch.device) -> Callable[[int], tuple[float, float]]:
    """Run a training step on new identities; return wall-clock and processor seconds."""
    optimizer, rows = SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4), head.row_optimizer()
    head.attach(optimizer)
    rng, wait = np.random.default_rng(0), torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def step(number: int) -> tuple[float, float]:
        labels_B = torch.from_numpy(rng.integers(0, identities, BATCH))
        features_BD = torch.randn(BATCH, DIM, device=device, requires_grad=True)
        fill(head, labels_B, rng)
        wait()
        clock, processor = time.perf_counter(), time.process_time()
        head.begin_step(labels_B, number)
        optimizer.zero_grad(set_to_none=True)
        head(features_BD, labels_B).loss.backward()
        for each in (optimizer, rows) if rows else (optimizer,):
            each.step()
        head.end_step()
        wait()
        return time.perf_counter() - clock, time.process_time() - processor

    return step


def measure(point: str, device: torch.device, folder: Path) -> dict[str, float]:
    """Measure one point in this process: seconds of a step, and bytes above those before the head was built."""
    name, identities, length = point.split(":")
    warm_up(device)
    before = peak(device)
    head = build(name, int(identities), int(length) or None, folder, device)
    step = make_step(head, int(identities), device)
    for number in range(WARM_UP):
        step(number)
    times: list[tuple[float, float]] = []
    while not times or sum(clock for clock, _ in times) < SECONDS:
        times.append(step(WARM_UP + len(times)))
    clock, processor = (median(column) for column in zip(*times, strict=True))
    return {"seconds": clock, "processor_seconds": processor, "bytes": peak(device) - before}


def measure_apart(point: str, given: argparse.Namespace, **environment: str) -> dict[str, float]:
    """Measure one point in a fresh process."""
    command = [sys.executable, __file__, "--point", point, "--device", given.device, "--threads", str(given.threads)]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        done = subprocess.run(
            [*command, "--folder", folder],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | environment,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def choose_points(given: argparse.Namespace) -> list[str]:
    """Return every head at every number of identities that fits into memory."""
    points = [
        f"{name}:{identities}:0"
        for identities in given.identities
        for name in given.heads
        if compute_bytes(name, identities) < given.limit_gib * 2**30
    ]
    same = f"gif:1000000:{code_shape(64_000_000, TokenizationConfig()).length}"
    return [*points, same] if {"gif:1000000:0", "gif:64000000:0"} <= set(points) else points


def tell(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Print a table and the ratios, and the number of identities at which a GPU of 12 GB is full."""
    print(
        f"\n{'head':14} {'identities':>11}  {'l × v':>7} {'ms':>9} {'ms processor':>12} {'MiB':>7} {'MiB computed':>12}"
    )
    for point, values in found.items():
        name, identities, length = point.split(":")
        shape = code_shape(int(identities), TokenizationConfig(length=int(length) or None))
        code = f"{shape.length} × {shape.vocab_size}" if name in CODES else ""
        computed = f"{compute_bytes(name, int(identities)) / 2**20:12.0f}" if name not in CODES else " " * 12
        times = f"{1e3 * values['seconds']:9.1f} {1e3 * values['processor_seconds']:12.1f}"
        print(f"{HEADS[name]:14} {int(identities):11,}  {code:>7} {times} {values['bytes'] / 2**20:7.0f} {computed}")
    pairs = [(over, ours, at) for over in HEADS if over not in CODES for ours in CODES for at in (100_000, 1_000_000)]
    ratios = {f"{over}/{ours}@{at}": ratio(found, over, ours, at) for over, ours, at in pairs}
    ratios = {name: value for name, value in ratios.items() if value}
    for name, value in ratios.items():
        parts = f"{value['time']} by the clock, {value['processor']} of the processor, {value['memory']} of memory"
        print(f"{name}: {parts}")
    flat = flatness(found)
    for name, value in flat.items():
        print(f"{name}: {value}")
    ends = {name: int(1e6 * GPU_BYTES / compute_bytes(name, 10**6)) for name in HEADS if name not in CODES}
    print("a GPU of 12 GB is full (computed from the bytes above, the head alone) at", end=" ")
    print(", ".join(f"{end:,} identities with {HEADS[name]}" for name, end in ends.items()), end="; ")
    print("with GIF nothing on it grows with the identities")
    return {"ratios": ratios, **flat, "identities_on_12_gb": ends}


def ratio(found: dict[str, dict[str, float]], name: str, over: str, identities: int) -> dict[str, float] | None:
    """Return time and memory of a head over those of a head on codes, at the same number of identities."""
    codes, other = found.get(f"{over}:{identities}:0"), found.get(f"{name}:{identities}:0")
    if codes is None or other is None:
        return None
    parts = {"time": "seconds", "processor": "processor_seconds", "memory": "bytes"}
    return {part: round(other[key] / codes[key], 1) for part, key in parts.items()}


def flatness(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return 64 million identities over one million, by the rule and with codes of the same length."""
    last = found.get("gif:64000000:0")
    starts = {point: found[point] for point in found if point.startswith("gif:1000000:")}
    if last is None:
        return {}
    return {
        f"gif_64m_over_1m{'_same_length' if not point.endswith(':0') else ''}_{part}": round(last[key] / start[key], 3)
        for point, start in starts.items()
        for part, key in (("time", "seconds"), ("processor", "processor_seconds"), ("memory", "bytes"))
    }


def draw(path: Path, found: dict[str, dict[str, float]], device: str) -> None:
    """Write both curves on logarithmic axes as a static image (.svg) or as an interactive page (.html)."""
    by_rule = {point: values for point, values in found.items() if point.endswith(":0")}
    panels = PANELS[torch.device(device).type]
    curves: Curves = {title: {} for title, _, _ in panels}
    for title, key, unit in panels:
        for name in HEADS:
            mine = [
                (int(point.split(":")[1]), values[key] * unit) for point, values in by_rule.items() if name in point
            ]
            curves[title][HEADS[name]] = sorted(mine)
    path.write_text(draw_page(curves) if path.suffix == ".html" else draw_svg(curves))


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--identities", type=int, nargs="+", default=list(IDENTITIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-gib", type=float, default=12.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--plot", type=Path, help="An image (.svg) or a page (.html) to write.")
    parser.add_argument("--folder", type=Path, help="Folder for the temporary sparse files.")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.point:
        print(json.dumps(measure(given.point, torch.device(given.device), given.folder)))
        return
    points = choose_points(given)
    rounds: dict[str, list[dict[str, float]]] = {point: [] for point in points}
    for number in range(given.rounds):
        for point in points:
            if number and rounds[point][0]["seconds"] > LONG:
                continue
            rounds[point].append(measure_apart(point, given))
            clock, processor, _ = rounds[point][-1].values()
            print(f"round {number + 1}: {point} {clock:.3f} s, {processor:.3f} s of the processor", flush=True)
    found = {point: {key: median(r[key] for r in many) for key in many[0]} for point, many in rounds.items()}
    for point, values in found.items():
        values["bytes"] = measure_apart(point, given, **GIVES_BACK)["bytes"]
    metrics = tell(found)
    if given.plot:
        draw(given.plot, found, given.device)
    settings = {"rounds": given.rounds, "threads": given.threads, "device": given.device, "cores": os.cpu_count()}
    print(json.dumps({"benchmark": "head_cost", **settings, **metrics, "points": found}))


if __name__ == "__main__":
    main()
