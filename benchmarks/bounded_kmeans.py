"""One bounded level against the package k-means-constrained, and the bounded assignment against the exact optimum.

pip install --target constrained --no-deps k-means-constrained ortools joblib
python benchmarks/bounded_kmeans.py --package constrained [--rows 20000] [--rounds 3]

Both get the same rows, capacity and number of rounds; the package has its own start (k-means++) and a single one. The
objective is the summed cosine of the rows to the mean direction of their cluster, summed over the rounds, each with
another seed. The exact optimum is that of a solver of assignments with a column for every seat.
"""

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from gif_core.tokenization import assign_bounded, bounded_kmeans, spherical_kmeans

Vectors = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def draw_vectors(count: int, dimensions: int, groups: int, spread: float) -> Vectors:
    """Return unit rows in clusters around many directions."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(groups, dimensions))[rng.integers(groups, size=count)]
    rows += spread * rng.normal(size=(count, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def objective(vectors_ND: Vectors, labels_N: Labels) -> float:
    """Return the summed cosine of rows to the mean direction of their cluster."""
    return sum(float(np.linalg.norm(vectors_ND[labels_N == k].sum(axis=0))) for k in np.unique(labels_N))


def load_package(path: str | None) -> Any:
    """Import the class of k-means-constrained, which is not a dependency of the project."""
    sys.path += [path] if path else []
    try:
        from k_means_constrained import KMeansConstrained
    except ImportError as error:
        raise SystemExit(f"{error}: install it as described at the top of this file, and pass --package") from error
    return KMeansConstrained


def shortfall_of_assignment(given: argparse.Namespace) -> float:
    """Return how far the bounded assignment of 2,000 rows to 20 clusters is below the exact optimum."""
    vectors_ND = draw_vectors(2000, given.dimensions, given.groups, given.spread)
    similarity_NK = vectors_ND @ spherical_kmeans(vectors_ND, 20, iterations=20, seed=0).T
    labels_N = assign_bounded(similarity_NK, capacity=105)
    seats_NS = np.repeat(similarity_NK.astype(np.float64), 105, axis=1)
    best = seats_NS[linear_sum_assignment(seats_NS, maximize=True)].sum()
    return float(1 - similarity_NK[np.arange(2000), labels_N].sum(dtype=np.float64) / best)


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--package", help="the folder that k-means-constrained is installed in")
    given = parser.parse_args()
    package = load_package(given.package)
    shortfall = shortfall_of_assignment(given)
    print(f"assignment of 2000 x 20: {100 * shortfall:.5f} % below the optimum")
    vectors_ND = draw_vectors(given.rows, given.dimensions, given.groups, given.spread)
    double_ND = vectors_ND.astype(np.float64)
    capacity = round(given.rows / given.clusters / 0.9)
    seconds, reached = np.zeros((given.rounds, 2)), np.zeros((given.rounds, 2))
    for seed in range(given.rounds):
        started = time.perf_counter()
        with threadpool_limits(1):
            centroids_KD = bounded_kmeans(
                vectors_ND, given.clusters, capacity=capacity, iterations=given.iterations, seed=seed
            )
            ours_N = assign_bounded(vectors_ND @ centroids_KD.T, capacity=capacity)
        seconds[seed, 0] = time.perf_counter() - started
        theirs = package(
            given.clusters, size_max=capacity, n_init=1, max_iter=given.iterations, random_state=seed, n_jobs=1
        )
        started = time.perf_counter()
        theirs_N = theirs.fit_predict(double_ND)
        seconds[seed, 1] = time.perf_counter() - started
        reached[seed] = objective(vectors_ND, ours_N), objective(vectors_ND, theirs_N)
        print(f"round {seed}: seconds {seconds[seed].round(2)}, objective {reached[seed].round(1)}", flush=True)
    faster, better = float(np.median(seconds[:, 1] / seconds[:, 0])), float(np.divide(*reached.sum(axis=0)))
    print(f"{faster:.1f} times faster, objective {better:.5f} of theirs")
    metrics = {
        "times_faster": round(faster, 1),
        "objective_ratio": round(better, 5),
        "below_optimum": float(f"{shortfall:.2g}"),
    }
    print(
        json.dumps(
            {
                "benchmark": "bounded_kmeans",
                **{name: value for name, value in vars(given).items() if name != "package"},
                **metrics,
            }
        )
    )


if __name__ == "__main__":
    main()
