"""One separation step (Eq. 6) against the two matrix products it cannot do without.

python benchmarks/separation_step.py [--vectors 100000] [--dimensions 512] [--batch 2048]

The reference is the bare products Q Hᵀ and S H of the same sizes, in the same chunks, measured in turn with
the step.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch

from gif_core.separation import CHUNK, batch_gradient, unit_rows


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def bare_products(vectors_ND: torch.Tensor, batch_BD: torch.Tensor) -> None:
    """The physical limit: two products per chunk of H."""
    for chunk_CD in vectors_ND.split(CHUNK):
        (batch_BD @ chunk_CD.T) @ chunk_CD


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    vectors_ND = unit_rows(torch.randn(given.vectors, given.dimensions, generator=generator))
    rows_B = torch.randperm(given.vectors, generator=generator)[: given.batch]
    batch_gradient(vectors_ND, rows_B, 2.0)
    steps, products = [], []
    for number in range(given.rounds):
        products.append(seconds(lambda: bare_products(vectors_ND, vectors_ND[rows_B])))
        steps.append(seconds(lambda: batch_gradient(vectors_ND, rows_B, 2.0)))
        print(f"round {number}: step {steps[-1]:.3f} s, bare products {products[-1]:.3f} s")
    ratio = min(steps) / min(products)
    print(f"step / bare products: {ratio:.3f}")
    print(json.dumps({"benchmark": "separation_step", **vars(given), "step_over_products": round(ratio, 3)}))


if __name__ == "__main__":
    main()
