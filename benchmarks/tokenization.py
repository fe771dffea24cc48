"""Tokenizing with the capacity bound against the same hierarchy by plain, unbounded FAISS k-means.

python benchmarks/tokenization.py [--identities 200000] [--dimensions 512]
python benchmarks/tokenization.py --identities 1000000 --memory      # the peak memory of mapped vectors instead

The reference splits every node by FAISS with the same rounds, the same rows to train on and as many nodes at once, and
lets all identities have the nearest centroid. The objective is the cosine of identities to the mean direction of their
cluster, summed over the levels.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from threadpoolctl import threadpool_limits

from gif_core.tokenization import (
    CodeShape,
    align_tokens,
    check_codes,
    code_quality,
    code_shape,
    mean_cosines,
    sum_by_prefix,
    tokenize,
    write_code_table,
)
from schemas.tokenization import TokenizationConfig

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
CONFIG = TokenizationConfig()


def draw_vectors(count: int, dimensions: int, groups: int, spread: float, seed: int = 0) -> Vectors:
    """Return unit rows in clusters around many directions."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((groups, dimensions), dtype=np.float32)[rng.integers(groups, size=count)]
    rows += spread * rng.standard_normal((count, dimensions), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def split_plainly(vectors_ND: Vectors, rows: Rows, num_clusters: int) -> list[Rows]:
    """Split a node by FAISS alone, on this thread."""
    faiss.omp_set_num_threads(1)
    own_ND = vectors_ND[rows]
    kmeans = faiss.Kmeans(
        vectors_ND.shape[1],
        num_clusters,
        niter=CONFIG.iterations,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=CONFIG.points_per_centroid,
    )
    kmeans.train(own_ND)
    nearest_N = kmeans.index.search(own_ND, 1)[1][:, 0]
    return [part for part in (rows[nearest_N == k] for k in range(num_clusters)) if len(part)]


def build_plain_tree(vectors_ND: Vectors, shape: CodeShape) -> list[Rows]:
    """Return the clusters of all levels of the unbounded hierarchy; nodes of at most v identities are not split."""
    clusters, nodes = [], [np.arange(len(vectors_ND))]
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in range(shape.length - 1):
            large = [rows for rows in nodes if len(rows) > shape.vocab_size]
            parts = pool.map(lambda rows: split_plainly(vectors_ND, rows, shape.vocab_size), large)
            alone = [rows[i : i + 1] for rows in nodes if len(rows) <= shape.vocab_size for i in range(len(rows))]
            nodes = [part for children in parts for part in children] + alone
            clusters += nodes
    return clusters


def compare(given: argparse.Namespace) -> dict[str, float]:
    """Measure time and objective of both, in turn."""
    vectors_ND = draw_vectors(given.identities, given.dimensions, given.groups, given.spread)
    shape = code_shape(given.identities, CONFIG)
    print(f"{given.identities} identities, codes of {shape.length} tokens of {shape.vocab_size} values")
    seconds, cpu, objective = ({"plain": list[float](), "bounded": list[float]()} for _ in range(3))
    for number in range(given.rounds):
        started, started_cpu = time.perf_counter(), time.process_time()
        clusters = build_plain_tree(vectors_ND, shape)
        seconds["plain"].append(time.perf_counter() - started)
        cpu["plain"].append(time.process_time() - started_cpu)
        objective["plain"].append(sum(float(np.linalg.norm(vectors_ND[rows].sum(axis=0))) for rows in clusters))
        started, started_cpu = time.perf_counter(), time.process_time()
        *_, last = tokenize(vectors_ND, shape, iterations=CONFIG.iterations, seed=number)
        seconds["bounded"].append(time.perf_counter() - started)
        cpu["bounded"].append(time.process_time() - started_cpu)
        check_codes(last.codes_NL, shape)
        levels = sum_by_prefix(vectors_ND, last.codes_NL, shape)
        objective["bounded"].append(len(vectors_ND) * sum(mean_cosines(levels)[1:]))
        print(f"round {number}: plain {seconds['plain'][-1]:.1f} s, bounded {seconds['bounded'][-1]:.1f} s", flush=True)
    time_ratio = min(seconds["bounded"]) / min(seconds["plain"])
    cpu_ratio = min(cpu["bounded"]) / min(cpu["plain"])
    objective_ratio = sum(objective["bounded"]) / sum(objective["plain"])
    print(f"bounded / plain: time {time_ratio:.2f}, CPU time {cpu_ratio:.2f}, objective {objective_ratio:.4f}")
    return {
        "time_over_plain": round(time_ratio, 3),
        "cpu_over_plain": round(cpu_ratio, 3),
        "objective_over_plain": round(objective_ratio, 5),
    }


def measure_memory(given: argparse.Namespace) -> dict[str, float]:
    """Measure the peak memory of a process that tokenizes memory-mapped vectors, against the size of the vectors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.npy")
        mapped = np.lib.format.open_memmap(path, "w+", np.float32, (given.identities, given.dimensions))
        for start in range(0, given.identities, 50_000):
            block = mapped[start : start + 50_000]
            block[:] = draw_vectors(len(block), given.dimensions, given.groups, given.spread, seed=start)
        size = mapped.nbytes / 2**30
        del mapped, block
        printed = subprocess.run(
            [sys.executable, __file__, "--mapped", path], check=True, capture_output=True, text=True
        ).stdout
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    limit = 1.5 * size + 1
    print(f"{given.identities} identities: {found}; vectors {size:.2f} GiB, limit {limit:.2f} GiB")
    return found | {"vectors_gib": round(size, 2), "limit_gib": round(limit, 2)}


def name_identities(count: int) -> pa.Table:
    """Return a table of identities."""
    ids = np.arange(count)
    return pa.table({"identity_id": ids, "label": [f"person-{i}" for i in ids], "num_samples": np.full(count, 20)})


def tokenize_mapped(path: Path) -> None:
    """Tokenize the vectors of a file and measure the quality; print times and peak memory as JSON."""
    vectors_ND = np.load(path, mmap_mode="r")
    shape = code_shape(len(vectors_ND), CONFIG)
    started = time.perf_counter()
    *_, last = tokenize(vectors_ND, shape, iterations=CONFIG.iterations, seed=0)
    tokenized = time.perf_counter()
    levels = sum_by_prefix(vectors_ND, last.codes_NL, shape)
    *_, aligned = align_tokens(vectors_ND, last.codes_NL, levels, shape, seed=0)
    done = time.perf_counter()
    write_code_table(path.parent, aligned.codes_NL, shape, name_identities(len(vectors_ND)))
    code_quality(aligned.codes_NL, shape, vectors_ND)
    metrics = {
        "tokenize_seconds": round(tokenized - started, 1),
        "align_seconds": round(done - tokenized, 1),
        "table_and_quality_seconds": round(time.perf_counter() - done, 1),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    print(json.dumps(metrics))


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=200_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--spread", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", action="store_true", help="measure peak memory instead")
    parser.add_argument("--mapped", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mapped:
        tokenize_mapped(given.mapped)
        return
    metrics = measure_memory(given) if given.memory else compare(given)
    settings = {name: value for name, value in vars(given).items() if name != "mapped"}
    print(json.dumps({"benchmark": "tokenization", **settings, **metrics}))


if __name__ == "__main__":
    main()
