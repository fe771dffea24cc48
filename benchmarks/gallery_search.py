"""Search in a gallery: exact, with a graph (HNSW) and with an inverted file (IVF), by the number of enrolled people.

python benchmarks/gallery_search.py [--identities 10000 100000 1000000] [--dimension 512] [--effective 64]
    [--cosine 0.6] [--efforts 64 128 256 512] [--ivf-limit 100000] [--threads 1]

Templates are unit vectors that vary in `--effective` of the dimensions, as features of faces do, plus a tenth of noise
in all of them. A query has a cosine of about `--cosine` to the template of its identity. recall@1 is the share of
queries for which an index returns the identity that exact search returns. Times are processor times: `build` is what a
process spends once, on `--threads` threads; `query` is the search of one face, `batch` that of 64 faces at once, per
face, both on one thread. Memory is that of the serialised index. The inverted file has √N cells, of which a third is
searched; it is left out above `--ivf-limit` identities.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from gif_core.galleries import build_index

Floats = NDArray[np.float32]
CHUNK = 50_000
SINGLE, BATCH, QUERIES = 40, 64, 2048


def unit(rows: Floats) -> Floats:
    """Normalise the rows."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def draw(count: int, basis: Floats, rng: np.random.Generator) -> Floats:
    """Unit vectors that vary mostly in the directions of the basis."""
    rows = np.empty((count, basis.shape[1]), np.float32)
    for start in range(0, count, CHUNK):
        part = rows[start : start + CHUNK]
        part[:] = rng.standard_normal((len(part), len(basis)), dtype=np.float32) @ basis
        part += 0.1 * rng.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return rows


def disturb(rows: Floats, other: Floats, cosine: float) -> Floats:
    """Unit vectors at this cosine to the given ones, towards others of the same world."""
    across = unit(other - (other * rows).sum(axis=1, keepdims=True) * rows)
    return np.ascontiguousarray(cosine * rows + np.sqrt(1 - cosine**2) * across, np.float32)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the processor time."""
    start = time.process_time()
    return work(), time.process_time() - start


def measure(index: Any, queries: Floats, exact: NDArray[np.int64] | None) -> tuple[dict[str, float], NDArray[np.int64]]:
    """Times of single and of batched queries, and recall@1 against exact search."""
    _, single = timed(lambda: [index.search(queries[row : row + 1], 1) for row in range(SINGLE)])
    parts = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
    found, batched = timed(lambda: np.concatenate([index.search(part, 1)[1][:, 0] for part in parts]))
    recall = 1.0 if exact is None else float((found == exact).mean())
    return {"query_ms": 1e3 * single / SINGLE, "batch_ms": 1e3 * batched / len(queries), "recall@1": recall}, found


def megabytes(index: Any) -> float:
    """Size of the index as a file."""
    return float(faiss.serialize_index(index).nbytes / 1e6)


def cells(vectors: Floats) -> Any:
    """An inverted file with √N cells, of which a third is searched."""
    count, width = vectors.shape
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, round(count**0.5), faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical, index.cp.niter, index.cp.seed = True, 8, 0
    index.train(vectors[: 64 * index.nlist])
    index.add(vectors)
    index.nprobe = index.nlist // 3
    return index


def build(make: Callable[[], Any], threads: int) -> tuple[Any, float]:
    """An index and the processor time it took."""
    faiss.omp_set_num_threads(threads)
    made = timed(make)
    faiss.omp_set_num_threads(1)
    return made


def compare(identities: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per index."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((given.effective, given.dimension), dtype=np.float32) / np.sqrt(given.effective)
    vectors = draw(identities, basis, rng)
    chosen = rng.integers(0, identities, QUERIES)
    queries = disturb(vectors[chosen], draw(QUERIES, basis, rng), given.cosine)
    flat, seconds = build(lambda: build_index(vectors, "flat"), given.threads)
    metrics, exact = measure(flat, queries, None)
    right = float((exact == chosen).mean())
    rows: list[dict[str, Any]] = [
        {"index": "flat", "build_s": seconds, "mb": megabytes(flat), **metrics, "right": right}
    ]
    del flat
    if identities <= given.ivf_limit:
        ivf, seconds = build(lambda: cells(vectors), given.threads)
        metrics = measure(ivf, queries, exact)[0]
        rows.append(
            {"index": f"ivf, {ivf.nprobe} of {ivf.nlist} cells", "build_s": seconds, "mb": megabytes(ivf), **metrics}
        )
    graph, seconds = build(lambda: build_index(vectors, "hnsw"), given.threads)
    size = megabytes(graph)
    for effort in given.efforts:
        graph.hnsw.efSearch = effort
        metrics = measure(graph, queries, exact)[0]
        rows.append({"index": f"hnsw, effort {effort}", "build_s": seconds, "mb": size, **metrics})
    return [{"identities": identities, **row} for row in rows]


def main() -> None:
    """Print a row per index and size, and all of them as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--effective", type=int, default=64)
    parser.add_argument("--cosine", type=float, default=0.6)
    parser.add_argument("--efforts", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--ivf-limit", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    found = []
    for identities in given.identities:
        for row in compare(identities, given):
            found.append(row)
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in row.items() if not isinstance(value, str))
            print(f"{row['index']:28}  {numbers}", flush=True)
    print(
        json.dumps({"dimension": given.dimension, "effective": given.effective, "cosine": given.cosine, "rows": found})
    )


if __name__ == "__main__":
    main()
