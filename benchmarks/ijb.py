"""All 1:1 metrics of a set of IJB-C's size from the features of its images, against the plain method.

python benchmarks/ijb.py [--scale 1.0] [--dim 512] [--rounds 1]

Features are random: a direction per identity, and noise per template and per image. Sizes are those of IJB-C: 469,375
images, 23,124 templates, 15,658,489 pairs of 3,531 enrolled templates with others, 19,557 of them same pairs. The plain
method collects the images of each template and media in a loop, multiplies the two templates of each pair, and passes
all scores to scikit-learn. Both start from the same memory-mapped file of features, and the benchmark fails unless they
produce the same metrics. Memory is the peak of a separate process that runs the fast method, without the mapped file
and without what the libraries use before the set is loaded.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve
from sklearn.preprocessing import normalize

from gif_core.protocols import FALSE_ACCEPT_RATES, Flags, pool_templates, score_pairs, verify_templates

IMAGES, TEMPLATES, ENROLLED, IDENTITIES = 469_375, 23_124, 3_531, 3_531
PAIRS, GENUINE = 15_658_489, 19_557
PAIRS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Task:
    """A set without its images."""

    template: np.ndarray
    media: np.ndarray
    detector: np.ndarray
    num_templates: int
    left: np.ndarray
    right: np.ndarray
    same: np.ndarray


def make_set(folder: Path, scale: float, dim: int) -> Task:
    """Draw templates of identities, images in media of up to ten, and pairs of enrolled with other templates."""
    rng = np.random.default_rng(0)
    images, templates, enrolled = (max(60, int(count * scale)) for count in (IMAGES, TEMPLATES, ENROLLED))
    identities = enrolled
    identity = np.append(np.arange(enrolled), rng.integers(0, identities, templates - enrolled))
    template = np.sort(np.append(np.arange(templates), rng.integers(0, templates, images - templates)))
    media = template * 50 + rng.integers(0, 1 + rng.integers(1, 9, templates)[template])
    direction = rng.standard_normal((identities, dim), np.float32)
    shift = rng.standard_normal((templates, dim), np.float32) * rng.uniform(0.5, 4, (templates, 1)).astype(np.float32)
    with (folder / "features.bin").open("wb") as file:
        for start in range(0, images, 2**14):
            chosen = template[start : start + 2**14]
            noise = rng.standard_normal((len(chosen), dim), np.float32)
            (direction[identity[chosen]] + shift[chosen] + 2 * noise).tofile(file)
    left, right, same = make_pairs(rng, identity, enrolled, scale)
    return Task(template, media, rng.uniform(0.5, 1, images), templates, left, right, same)


def make_pairs(rng: np.random.Generator, identity: np.ndarray, enrolled: int, scale: float) -> tuple[np.ndarray, ...]:
    """Genuine pairs with the enrolled template, and random impostor pairs, ordered by enrolled template."""
    others = np.arange(enrolled, len(identity))
    genuine = np.stack([identity[others], others], axis=1)[: max(30, int(GENUINE * scale))]
    count = max(2000, int((PAIRS - GENUINE) * scale**2))
    pairs = np.stack([rng.integers(0, enrolled, 2 * count), rng.choice(others, 2 * count)], axis=1)
    pairs = np.concatenate([genuine, pairs[identity[pairs[:, 0]] != identity[pairs[:, 1]]][:count]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int32), identity[pairs[:, 0]] == identity[pairs[:, 1]]


def map_features(folder: Path, dim: int) -> np.ndarray:
    """Return the original features for both; mirror images are not used, so that both methods read one file."""
    return np.memmap(folder / "features.bin", np.float32, "r").reshape(-1, dim)


def run_fast(features: np.ndarray, task: Task) -> list[float]:
    """Compute the metrics as the evaluation stage does."""
    template = pool_templates(
        lambda start, end: (features[start:end], features[start:end]),
        task.template,
        task.media,
        task.detector,
        int(task.num_templates),
        Flags(flip=False),
    )
    return list(verify_templates(score_pairs(template, task.left, task.right), task.same).tar_at_far.values())


def run_plain(features: np.ndarray, task: Task) -> list[float]:
    """Compute the metrics template by template and pair by pair, with scikit-learn's ROC curve."""
    templates = np.zeros((task.num_templates, features.shape[1]))
    for number in range(task.num_templates):
        (chosen,) = np.where(task.template == number)
        weighted = features[chosen] * task.detector[chosen][:, None]
        medias = task.media[chosen]
        for media in np.unique(medias):
            templates[number] += weighted[medias == media].mean(axis=0)
    templates = normalize(templates)
    scores = np.empty(len(task.left))
    for start in range(0, len(scores), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        scores[part] = np.sum(templates[task.left[part]] * templates[task.right[part]], axis=-1)
    fpr, tpr, _ = roc_curve(task.same, scores)
    fpr, tpr = np.flipud(fpr), np.flipud(tpr)
    return [float(tpr[np.argmin(np.abs(fpr - far))]) for far in FALSE_ACCEPT_RATES]


def own_mb() -> float:
    """Return the current memory of this process, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def measure_memory(folder: Path, dim: int, answer: Any) -> None:
    """Load the set and run the fast method in a separate process, sampling its memory a hundred times a second."""
    before, seen, done = own_mb(), [0.0], Event()

    def watch() -> None:
        while not done.wait(0.01):
            seen.append(own_mb())

    watcher = Thread(target=watch)
    watcher.start()
    arrays = np.load(folder / "task.npz")
    run_fast(map_features(folder, dim), Task(**{name: arrays[name] for name in arrays.files}))
    done.set()
    watcher.join()
    answer.put(max(seen) - before)


def extra_mb(folder: Path, dim: int, task: Task) -> float:
    """Return the memory of the fast method without the features."""
    np.savez(folder / "task.npz", **vars(task))
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=measure_memory, args=(folder, dim, answer))
    process.start()
    extra: float = answer.get()
    process.join()
    return extra


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="Share of IJB-C's images and templates.")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    times: dict[str, list[float]] = {"fast": [], "plain": []}
    metrics: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = make_set(folder, given.scale, given.dim)
        features = map_features(folder, given.dim)
        print(f"{len(features):,} images, {task.num_templates:,} templates, {len(task.left):,} pairs", flush=True)
        memory = extra_mb(folder, given.dim, task)
        for _ in range(given.rounds):
            for method, run in (("fast", run_fast), ("plain", run_plain)):
                started = time.perf_counter()
                metrics[method] = run(features, task)
                times[method].append(time.perf_counter() - started)
                print(f"{method}: {times[method][-1]:.1f} s, {metrics[method]}", flush=True)
            assert metrics["fast"] == metrics["plain"], "the two methods give different metrics"
    result = {
        "images": len(features),
        "templates": task.num_templates,
        "pairs": len(task.left),
        "cores": len(os.sched_getaffinity(0)),
        "fast_seconds": round(median(times["fast"]), 2),
        "plain_seconds": round(median(times["plain"]), 2),
        "times_as_fast": round(median(p / f for p, f in zip(times["plain"], times["fast"], strict=True)), 2),
        "extra_mb": round(memory),
        "tar_at_far": dict(zip(map("{:g}".format, FALSE_ACCEPT_RATES), metrics["fast"], strict=True)),
    }
    print(json.dumps({"benchmark": "ijb", **vars(given), **result}))


if __name__ == "__main__":
    main()
