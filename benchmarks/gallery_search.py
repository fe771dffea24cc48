"""Search in a gallery by the number of enrolled identities: exact, compressed as galleries do it, and other indexes.

python benchmarks/gallery_search.py [--identities 10000 100000 1000000] [--dimension 512] [--queries 2048]
    [--also hnsw ivf] [--efforts 64 256 512] [--threads 1]

The world is like that of a face network. Directions of identities have a decaying spectrum (variance 1 / (i + 16) in
the i-th direction), so that cosines of different identities spread by 0.07; 1,000 groups of uneven sizes share 15 % of
the variance. An image has a cosine of 0.77 ± 0.08 to its identity, and a template is the mean of one to five images.
Queries are other images of enrolled identities, and images of strangers. recall@1 is the share of queries for which an
index returns the identity that exact search returns, for both kinds. Times are processor times: `build` is what a
process spends once, `query` is the search of one face, `batch` that of 64 faces at once, per face. `mb` is the memory
besides the templates, which exact comparisons read from a mapped file. HNSW and IVF hold the templates themselves.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from gif_core.galleries import build_index

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Search = Callable[[Floats], Rows]
CHUNK = 50_000
SINGLE, BATCH = 40, 64
GROUPS, KNEE, SHARED = 1000, 16, 0.15


def unit(rows: Floats) -> Floats:
    """Normalise the rows."""
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class World:
    """Identities and their images, in the axes of the spectrum; `turn` hides these axes."""

    def __init__(self, width: int) -> None:
        """Draw the groups."""
        self.rng = np.random.default_rng(0)
        self.scale = (1 / np.sqrt(np.arange(width) + KNEE)).astype(np.float32)
        self.turn = np.linalg.qr(self.rng.standard_normal((width, width)))[0].astype(np.float32)
        self.groups, sizes = self._draw(GROUPS), self.rng.lognormal(0, 1, GROUPS)
        self.sizes = sizes / sizes.sum()

    def _draw(self, count: int) -> Floats:
        return unit(self.rng.standard_normal((count, len(self.scale)), dtype=np.float32) * self.scale)

    def people(self, count: int) -> Floats:
        """Directions of identities."""
        group = self.rng.choice(GROUPS, count, p=self.sizes)
        return unit(np.sqrt(1 - SHARED) * self._draw(count) + np.sqrt(SHARED) * self.groups[group])

    def images(self, people: Floats) -> Floats:
        """One image of each."""
        cosine = np.clip(self.rng.normal(0.77, 0.08, (len(people), 1)), 0.45, 0.95)
        return unit(cosine * people + np.sqrt(1 - cosine**2) * self._draw(len(people)))

    def templates(self, people: Floats) -> Floats:
        """Means of one to five images."""
        images = self.rng.integers(1, 6, (len(people), 1))
        return unit(sum(self.images(people) * (images > number) for number in range(5)))  # type: ignore[arg-type]


def draw(identities: int, width: int, queries: int) -> tuple[Floats, dict[str, Floats], Rows]:
    """Templates, queries of enrolled identities and of strangers, and who the enrolled are."""
    world, templates = World(width), np.empty((identities, width), np.float32)
    chosen, enrolled = np.sort(world.rng.choice(identities, min(queries, identities), replace=False)), []
    for start in range(0, identities, CHUNK):
        people = world.people(min(CHUNK, identities - start))
        templates[start : start + CHUNK] = world.templates(people) @ world.turn
        here = chosen[(chosen >= start) & (chosen < start + CHUNK)] - start
        enrolled.append(world.images(people[here]) @ world.turn)
    strangers = world.images(world.people(queries)) @ world.turn
    return templates, {"enrolled": np.concatenate(enrolled), "strangers": strangers}, chosen


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the processor time."""
    start = time.process_time()
    return work(), time.process_time() - start


def search_all(search: Search, queries: Floats) -> Rows:
    """The nearest identity of each query, 64 at once."""
    return np.concatenate([search(queries[start : start + BATCH]) for start in range(0, len(queries), BATCH)])


def measure(search: Search, queries: dict[str, Floats], exact: dict[str, Rows] | None) -> tuple[dict[str, Any], Any]:
    """Times of single and of batched queries, and recall@1 against exact search."""
    some = queries["enrolled"]
    _, single = timed(lambda: [search(some[row : row + 1]) for row in range(SINGLE)])
    found, batched = timed(lambda: {kind: search_all(search, each) for kind, each in queries.items()})
    times = {"query_ms": 1e3 * single / SINGLE, "batch_ms": 1e3 * batched / sum(map(len, queries.values()))}
    recall = {kind: 1.0 if exact is None else float((found[kind] == exact[kind]).mean()) for kind in found}
    return {**times, "recall@1": recall["enrolled"], "recall@1_strangers": recall["strangers"]}, found


def ours(templates: Floats, kind: Any) -> tuple[Search, float, float]:
    """An index of galleries: the search, the seconds and the megabytes of building it."""
    index, seconds = timed(lambda: build_index(templates, kind))
    size = getattr(index, "code_bytes", 0) + 4 * len(templates)
    return lambda queries: index.search(queries, 1)[1][:, 0], seconds, size / 1e6


def others(templates: Floats, given: argparse.Namespace) -> Iterator[tuple[str, Search, float, float]]:
    """Indexes of FAISS that were not chosen."""
    count, width = templates.shape
    if "hnsw" in given.also:
        graph = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = 80
        _, seconds = timed(lambda: graph.add(templates))
        size = faiss.serialize_index(graph).nbytes / 1e6
        for effort in given.efforts:
            graph.hnsw.efSearch = effort
            yield f"hnsw, effort {effort}", lambda queries: graph.search(queries, 1)[1][:, 0], seconds, size
    if "ivf" in given.also:
        cells = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, round(count**0.5), faiss.METRIC_INNER_PRODUCT)
        cells.cp.spherical, cells.cp.niter, cells.cp.seed = True, 8, 0
        _, seconds = timed(lambda: (cells.train(templates[: 64 * cells.nlist]), cells.add(templates)))
        size = faiss.serialize_index(cells).nbytes / 1e6
        cells.nprobe = cells.nlist // 3
        yield "ivf, a third of √N cells", lambda queries: cells.search(queries, 1)[1][:, 0], seconds, size


def compare(identities: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row per index."""
    templates, queries, chosen = draw(identities, given.dimension, given.queries)
    search, seconds, size = ours(templates, "exact")
    metrics, exact = measure(search, queries, None)
    right = float((exact["enrolled"] == chosen).mean())
    yield {"identities": identities, "index": "exact", "build_s": seconds, "mb": size, **metrics, "right": right}
    for name, search, seconds, size in (("compressed", *ours(templates, "compressed")), *others(templates, given)):
        metrics, _ = measure(search, queries, exact)
        yield {"identities": identities, "index": name, "build_s": seconds, "mb": size, **metrics}


def main() -> None:
    """Print a row per index and size, and all of them as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--queries", type=int, default=2048)
    parser.add_argument("--also", nargs="*", choices=("hnsw", "ivf"), default=[])
    parser.add_argument("--efforts", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    faiss.omp_set_num_threads(given.threads)
    found = []
    for identities in given.identities:
        for row in compare(identities, given):
            found.append(row)
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in row.items() if not isinstance(value, str))
            print(f"{row['index']:28}  {numbers}", flush=True)
    print(json.dumps({"dimension": given.dimension, "queries": given.queries, "rows": found}))


if __name__ == "__main__":
    main()
