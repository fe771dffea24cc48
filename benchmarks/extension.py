"""Codes for new identities, and the quality of a table, against one bare search for their nearest neighbours.

python benchmarks/extension.py [--identities 200000] [--new 10000] [--dimension 512] [--length 5] [--vocab-size 12]

Vectors and codes are random: the time does not depend on how well they fit. The reference is the matrix product of all
new vectors with all old ones, in chunks, and its row maxima.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gif_core.tokenization import CodeShape, check_codes, code_quality, extend, unpack_codes

CHUNK = 8192


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds and the result of a call."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def nearest(new_MD: NDArray[np.float32], old_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest cosine of each new vector."""
    parts = [(new_MD @ old_ND[start : start + CHUNK].T).max(axis=1) for start in range(0, len(old_ND), CHUNK)]
    return np.max(parts, axis=0)


def peak_mb() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=200_000)
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=12)
    given = parser.parse_args()
    shape, rng = CodeShape(given.length, given.vocab_size), np.random.default_rng(0)
    vectors = rng.standard_normal((given.identities + given.new, given.dimension), dtype=np.float32)
    for start in range(0, len(vectors), CHUNK):
        vectors[start : start + CHUNK] /= np.linalg.norm(vectors[start : start + CHUNK], axis=1, keepdims=True)
    old, new = vectors[: given.identities], vectors[given.identities :]
    codes = unpack_codes(rng.permutation(shape.capacity(0))[: given.identities], shape)
    before = peak_mb()
    seconds, new_codes = timed(lambda: extend(codes, shape, old, new))
    quality_seconds, _ = timed(lambda: code_quality(codes, shape, old))
    extra = peak_mb() - before
    reference, _ = timed(lambda: nearest(new, old))
    check_codes(np.concatenate([codes, new_codes]), shape)
    metrics = {
        "extend_seconds": round(seconds, 1),
        "extend_over_nearest_neighbours": round(seconds / reference, 2),
        "quality_seconds": round(quality_seconds, 1),
        "extra_mb": round(extra),
    }
    for name, metric in metrics.items():
        print(f"{name}: {metric}")
    print(json.dumps({"benchmark": "extension", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
