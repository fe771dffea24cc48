"""What a training head costs against the number of identities: one step on 512 features of 512 dimensions.

    python benchmarks/head_cost.py [--rounds 3] [--limit-gib 12] [--plot head_cost.svg] [--device cuda]
    python benchmarks/head_cost.py --heads gif arcface --identities 100000 1000000

A step is forward, backward and SGD with momentum. Every point is measured in a fresh process, all points in turn, in
every round; points whose step takes more than ten seconds are measured once. The medians over the rounds are reported,
in wall-clock time and in processor time, which other programs affect less. Memory is the peak of a further process
above its memory before the head was built; its allocator returns freed memory at once, so that memory in use is
counted, not memory kept for later. On a GPU it is the allocated memory. Heads with a row per identity stop where their
computed peak exceeds the limit. The code vectors and codes of gif are mapped from sparse files of full size; the rows
in use are filled in and unmapped before the step, which thus has their page faults but reads no disk
(rows_on_disk.py does). Code length and vocab size follow the project's rule; at a million identities the code length of
64 million is measured too.
"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from log_plots import Curves, draw_page, draw_svg

from gif_core.paper import HEADS, HeadPoint, compute_bytes, measure_apart
from gif_core.paper.head_steps import GIVES_BACK
from gif_core.tokenization import code_shape
from schemas.tokenization import TokenizationConfig

LONG = 10.0
"""A point whose step takes longer than this many seconds is measured once."""
CODES = [name for name, kind in HEADS.items() if kind.has_codes]
SHOWN = ("arcface", "pfc0.3", "pfc0.1", "gif", "mapped", "paper")
"""Heads that are measured if none are named."""
IDENTITIES = (10_000, 100_000, 300_000, 1_000_000, 2_000_000, 4_000_000, 16_000_000, 64_000_000)
GPU_BYTES = 12e9
MEMORY = ("GiB of memory", "bytes", 2.0**-30)
PANELS = {
    "cpu": (("seconds of a step (processor)", "processor_seconds", 1.0), MEMORY),
    "cuda": (("seconds of a step", "seconds", 1.0), MEMORY),
}
"""What is plotted; other programs affect processor time less than wall-clock time."""


def read_point(point: str, given: argparse.Namespace | None = None) -> HeadPoint:
    """The point called `head:identities:length`."""
    name, identities, length = point.split(":")
    device, threads = (given.device, given.threads) if given else ("cpu", None)
    return HeadPoint(name, int(identities), length=int(length) or None, device=device, threads=threads)


def choose_points(given: argparse.Namespace) -> list[str]:
    """Return every head at every number of identities that fits into memory."""
    points = [
        f"{name}:{identities}:0"
        for identities in given.identities
        for name in given.heads
        if name in CODES or compute_bytes(HeadPoint(name, identities)) < given.limit_gib * 2**30
    ]
    same = f"gif:1000000:{code_shape(64_000_000, TokenizationConfig()).length}"
    return [*points, same] if {"gif:1000000:0", "gif:64000000:0"} <= set(points) else points


def tell(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Print a table and the ratios, and the number of identities at which a GPU of 12 GB is full."""
    print(
        f"\n{'head':17} {'identities':>11}  {'l × v':>7} {'ms':>9} {'ms processor':>12} {'MiB':>7} {'MiB computed':>12}"
    )
    for point, values in found.items():
        name, identities, length = point.split(":")
        shape = code_shape(int(identities), TokenizationConfig(length=int(length) or None))
        code = f"{shape.length} × {shape.vocab_size}" if name in CODES else ""
        computed = f"{compute_bytes(read_point(point)) / 2**20:12.0f}" if name not in CODES else " " * 12
        times = f"{1e3 * values['seconds']:9.1f} {1e3 * values['processor_seconds']:12.1f}"
        print(
            f"{HEADS[name].label:17} {int(identities):11,}  {code:>7} {times} {values['bytes'] / 2**20:7.0f} {computed}"
        )
    pairs = [(over, ours, at) for over in HEADS if over not in CODES for ours in CODES for at in (100_000, 1_000_000)]
    ratios = {f"{over}/{ours}@{at}": ratio(found, over, ours, at) for over, ours, at in pairs}
    ratios = {name: value for name, value in ratios.items() if value}
    for name, value in ratios.items():
        parts = f"{value['time']} by the clock, {value['processor']} of the processor, {value['memory']} of memory"
        print(f"{name}: {parts}")
    flat = flatness(found)
    for name, value in flat.items():
        print(f"{name}: {value}")
    rows = [name for name in SHOWN if name not in CODES]
    ends = {name: int(1e6 * GPU_BYTES / compute_bytes(HeadPoint(name, 10**6))) for name in rows}
    print("a GPU of 12 GB is full (computed from the bytes above, the head alone) at", end=" ")
    print(", ".join(f"{end:,} identities with {HEADS[name].label}" for name, end in ends.items()), end="; ")
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
                (int(point.split(":")[1]), values[key] * unit)
                for point, values in by_rule.items()
                if point.startswith(f"{name}:")
            ]
            if mine:
                curves[title][HEADS[name].label] = sorted(mine)
    path.write_text(draw_page(curves) if path.suffix == ".html" else draw_svg(curves))


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(SHOWN))
    parser.add_argument("--identities", type=int, nargs="+", default=list(IDENTITIES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-gib", type=float, default=12.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--plot", type=Path, help="An image (.svg) or a page (.html) to write.")
    parser.add_argument("--folder", type=Path, help="Folder for the temporary sparse files.")
    given = parser.parse_args()
    points = choose_points(given)
    rounds: dict[str, list[dict[str, float]]] = {point: [] for point in points}
    for number in range(given.rounds):
        for point in points:
            if number and rounds[point][0]["seconds"] > LONG:
                continue
            rounds[point].append(asdict(measure_apart(read_point(point, given), given.folder)))
            clock, processor, _ = rounds[point][-1].values()
            print(f"round {number + 1}: {point} {clock:.3f} s, {processor:.3f} s of the processor", flush=True)
    found = {point: {key: median(r[key] for r in many) for key in many[0]} for point, many in rounds.items()}
    for point, values in found.items():
        values["bytes"] = measure_apart(read_point(point, given), given.folder, GIVES_BACK).bytes
    metrics = tell(found)
    if given.plot:
        draw(given.plot, found, given.device)
    settings = {"rounds": given.rounds, "threads": given.threads, "device": given.device, "cores": os.cpu_count()}
    print(json.dumps({"benchmark": "head_cost", **settings, **metrics, "points": found}))


if __name__ == "__main__":
    main()
