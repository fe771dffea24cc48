"""A step of the head whose code vectors learn in a file larger than memory, against one of a million identities.

    python benchmarks/rows_on_disk.py --identities 20000000 --folder /scratch

Every row is written before, so that reading one really reads the disk, and both files are dropped from the page cache.
All identities have codes of the same length. A step is forward, backward and the update of 512 features of 512
dimensions with 512 drawn negatives; `ahead` reads the rows of the next step in a thread, as a training on a GPU does.
Wall-clock time, processor time and bytes read from the disk are medians and means of the steps of one process, in which
the files take turns.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.optim import SGD

from gif_core.heads import Head, build_head
from gif_core.runtime import expect_scattered
from gif_core.tokenization import code_shape
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

BATCH = DIM = 512
BLOCK = 1 << 16
WARM_UP, ROUNDS, STEPS = 3, 4, 15
Seconds = tuple[float, float, int]
"""Wall-clock and processor seconds of a step, and bytes that it read."""


def write_rows(path: Path, identities: int) -> None:
    """Write unit vectors, a block of them over and over."""
    block = np.random.default_rng(0).standard_normal((BLOCK, DIM), dtype=np.float32)
    content = memoryview((block / np.linalg.norm(block, axis=1, keepdims=True)).tobytes())
    with path.open("wb") as file:
        for start in range(0, identities, BLOCK):
            file.write(content[: 4 * DIM * min(BLOCK, identities - start)])


def drop_from_cache(path: Path) -> None:
    """Write what has changed to the disk, so that the next rows are read from there."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def build(path: Path, identities: int, length: int, seed: int) -> Head:
    """The default head on a file of rows, which it also writes; another seed draws negatives that are not cached."""
    vectors = expect_scattered(np.memmap(path, np.float32, "r+", shape=(identities, DIM)))
    values = code_shape(identities, TokenizationConfig(length=length)).vocab_size
    codes = np.random.default_rng(1).integers(0, values, (identities, length), dtype=np.int32)
    return build_head(TrainingConfig(), codes, vectors, num_values=values, seed=seed)


def make_step(head: Head, identities: int, *, ahead: bool) -> Callable[[], Seconds]:
    """A training step on identities that are drawn anew."""
    optimizer, rows = SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4), head.row_optimizer()
    assert rows is not None
    head.attach(optimizer)
    if ahead:
        head.vectors.read_ahead(torch.device("cpu"))
    rng = np.random.default_rng([2, ahead])
    batches = [torch.from_numpy(rng.integers(0, identities, BATCH))]

    def step() -> Seconds:
        number = len(batches) - 1
        batches.append(torch.from_numpy(rng.integers(0, identities, BATCH)))
        features_BD = torch.randn(BATCH, DIM, requires_grad=True)
        clock, processor, bytes_read = time.perf_counter(), time.process_time(), read_bytes()
        head.begin_step(batches[number], number)
        head.prepare_step(batches[number + 1], number + 1)
        optimizer.zero_grad(set_to_none=True)
        head(features_BD, batches[number]).loss.backward()
        optimizer.step()
        rows.step()
        head.end_step()
        return time.perf_counter() - clock, time.process_time() - processor, read_bytes() - bytes_read

    return step


def read_bytes() -> int:
    """Bytes that this process has caused to be read from a disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def measure(path: Path, identities: list[int], *, ahead: bool) -> dict[int, dict[str, float]]:
    """Steps of every file in turn."""
    length = code_shape(max(identities), TokenizationConfig()).length
    for each in identities:
        drop_from_cache(path / str(each))
    steps = {
        each: make_step(build(path / str(each), each, length, int(ahead)), each, ahead=ahead) for each in identities
    }
    found: dict[int, list[Seconds]] = {each: [] for each in identities}
    for _ in range(ROUNDS):
        for each, step in steps.items():
            found[each] += [step() for _ in range(WARM_UP + STEPS)][WARM_UP:]
    return {
        each: {
            "milliseconds": round(1e3 * median(wall for wall, _, _ in many), 1),
            "processor_milliseconds": round(1e3 * median(processor for _, processor, _ in many), 1),
            "mib_read": round(sum(count for _, _, count in many) / len(many) / 2**20, 2),
        }
        for each, many in found.items()
    }


def main() -> None:
    """Write the files, measure, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identities", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure, with room for 2 KB an identity")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    identities, results = [1_000_000, given.identities], {}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for each in identities:
            write_rows(Path(folder) / str(each), each)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        share = 4 * DIM * given.identities / memory
        print(f"{given.identities:,} rows: {share:.2f} of the machine's memory, written to the disk", flush=True)
        for name in ("in line", "ahead"):
            results[name] = measure(Path(folder), identities, ahead=name == "ahead")
            for each, values in results[name].items():
                print(f"{name:8} {each:12,} identities: {values}", flush=True)
    ratios = {
        f"{name}_{key}": round(values[given.identities][key] / values[1_000_000][key], 3)
        for name, values in results.items()
        for key in ("milliseconds", "processor_milliseconds")
    }
    settings = {"identities": given.identities, "file_over_memory": round(share, 2), "threads": given.threads}
    print(json.dumps({"benchmark": "rows_on_disk", **settings, "ratios": ratios, "steps": results}))


if __name__ == "__main__":
    main()
