"""An audit of many identities, against one bare search for the nearest neighbours of their means.

python benchmarks/audit_scale.py [--identities 100000] [--images 8] [--dimension 128] [--threads 1]

Vectors are drawn: a mean per person and noise around it. One image in ten has the label of another identity, and one
person in twenty has two labels. The reference is FAISS's exact search among as many vectors. Memory is the peak of the
process beyond the features, which are in a mapped file in an audit of faces.
"""

import argparse
import json
import resource
import time

import faiss
import numpy as np

from gif_core.auditing import find_noise


def peak_mb() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=100_000)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    faiss.omp_set_num_threads(given.threads)
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(given.identities), given.images)
    features = np.empty((len(person), given.dimension), np.float16)
    for start in range(0, len(person), 65_536):
        some = person[start : start + 65_536]
        means = np.stack(
            [np.random.default_rng([1, each]).standard_normal(given.dimension) for each in np.unique(some)]
        )
        drawn = means[some - some[0]] + 0.9 * rng.standard_normal((len(some), given.dimension))
        features[start : start + 65_536] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    label = person.copy()
    divided = rng.choice(given.identities, given.identities // 20, replace=False)
    for place, each in enumerate(divided):
        label[each * given.images : each * given.images + given.images // 2] = given.identities + place
    flipped = rng.random(len(person)) < 0.1
    label[flipped] = rng.permutation(label[flipped])
    _, label = np.unique(label, return_inverse=True)
    before, started = peak_mb(), time.perf_counter()
    found = find_noise(features, label)
    seconds, extra = time.perf_counter() - started, peak_mb() - before
    flips = sum(len(each.rows) for each in found.findings if each.kind != "duplicate")
    right = sum(int(flipped[each.rows].sum()) for each in found.findings if each.kind != "duplicate")
    centres = features[:: given.images].astype(np.float32)
    index = faiss.IndexFlatIP(given.dimension)
    index.add(centres)
    started = time.perf_counter()
    index.search(centres, 2)
    reference = time.perf_counter() - started
    metrics = {
        "seconds": round(seconds, 1),
        "over_search": round(seconds / reference, 2),
        "extra_mb": round(extra),
        "duplicates": len(found.of("duplicate")),
        "divided": len(divided),
        "flip_precision": round(right / max(flips, 1), 3),
        "flip_recall": round(right / int(flipped.sum()), 3),
    }
    for name, metric in metrics.items():
        print(f"{name}: {metric}")
    print(json.dumps({"benchmark": "audit_scale", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
