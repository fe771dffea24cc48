"""One separation step (Eq. 6) against the two matrix products it requires, and its memory.

python benchmarks/separation_step.py [--vectors 100000] [--dimensions 512] [--batch 2048] [--rounds 5]
    [--threads 2]

The reference is the bare products Q Hᵀ and S H of the same sizes into buffers that are there already, in chunks of the
size that is fastest for them or in those of the step, whichever is faster; measured in turn with the step. The time is
that of the clock and that of the processor: the second is what other programs on the machine disturb less. Memory is
the growth of the process's peak by the first step, which comes before the products.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable

import torch

from gif_core.runtime import CHUNK, ShardedRows, unit_rows
from gif_core.separation import batch_gradient

CHUNKS = (CHUNK, 8192)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock and processor seconds of a call."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def peak_megabytes() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bare_products(vectors_ND: torch.Tensor, batch_BD: torch.Tensor, chunk: int) -> None:
    """Run the lower bound: two products per chunk of H."""
    buffer = torch.empty(len(batch_BD) * chunk)
    force_BD = torch.zeros_like(batch_BD)
    for chunk_CD in vectors_ND.split(chunk):
        similarity_BC = buffer[: len(batch_BD) * len(chunk_CD)].view(len(batch_BD), len(chunk_CD))
        torch.mm(batch_BD, chunk_CD.T, out=similarity_BC)
        force_BD.addmm_(similarity_BC, chunk_CD)


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    generator = torch.Generator().manual_seed(0)
    rows = ShardedRows(torch.randn(given.vectors, given.dimensions, generator=generator))
    rows.change(unit_rows)
    batch_B = torch.randperm(given.vectors, generator=generator)[: given.batch].sort().values
    torch.mm(rows.local[:256], rows.local[:256].T)
    before = peak_megabytes()
    batch_gradient(rows, batch_B, 2.0)
    memory = peak_megabytes() - before
    steps, products = [], []
    for number in range(given.rounds):
        for chunk in CHUNKS:  # equally many attempts for both
            products.append(seconds(lambda c=chunk: bare_products(rows.local, rows.local[batch_B], c)))
            steps.append(seconds(lambda: batch_gradient(rows, batch_B, 2.0)))
        print(f"round {number}: step {min(steps)[0]:.3f} s, bare products {min(products)[0]:.3f} s at best so far")
    clock, processor = (
        min(ours) / min(bare) for ours, bare in zip(zip(*steps, strict=True), zip(*products, strict=True), strict=True)
    )
    print(f"step / bare products: {clock:.3f} by the clock, {processor:.3f} in processor time (fastest of each)")
    print(f"memory of a step beyond H: {memory:.0f} MB")
    metrics = {"step_over_products": round(clock, 3), "in_processor_time": round(processor, 3)}
    print(json.dumps({"benchmark": "separation_step", **vars(given), **metrics, "extra_megabytes": round(memory)}))


if __name__ == "__main__":
    main()
