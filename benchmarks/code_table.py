"""The code table at a million identities: writing, size, look-ups by SQL and in memory, extra memory.

python benchmarks/code_table.py [--identities 1000000] [--length 5] [--vocab-size 16] [--rounds 5]

Codes are random and valid. The reference for writing is one plain Parquet file with the same rows; look-ups are medians
of many, each with different values.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gif_core.tokenization import CodeIndex, Codes, CodeShape, read_codes, unpack_codes, write_code_table
from schemas.files import CODES_DUCKDB_FILE, CODES_FILE

LOOKUPS = 200
POINT = "SELECT label, code FROM codes WHERE identity_id = ?"
PREFIX = "SELECT identity_id FROM codes WHERE c1 = ? AND c2 = ?"


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_mb() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_writing(
    folder: Path, codes_NL: Codes, shape: CodeShape, identities: pa.Table, rounds: int
) -> dict[str, Any]:
    """Measure the table and plain Parquet in turn; the Parquet of every round must have the same bytes."""
    before = peak_mb()
    write_code_table(folder, codes_NL, shape, identities)
    extra, first = peak_mb() - before, (folder / CODES_FILE).read_bytes()
    rows = pq.read_table(folder / CODES_FILE)
    ratios, times = [], []
    for _ in range(rounds):
        plain = seconds(lambda: pq.write_table(rows, folder / "plain.parquet"))
        times.append(seconds(lambda: write_code_table(folder, codes_NL, shape, identities)))
        ratios.append(times[-1] / plain)
        assert (folder / CODES_FILE).read_bytes() == first
    return {
        "write_seconds": round(median(times), 2),
        "write_over_plain_parquet": round(median(ratios), 2),
        "write_extra_mb": round(extra),
        "duckdb_mb": round((folder / CODES_DUCKDB_FILE).stat().st_size / 1e6, 1),
        "parquet_mb": round(len(first) / 1e6, 1),
    }


def measure_sql(path: Path, codes_NL: Codes, shape: CodeShape) -> dict[str, float]:
    """Return milliseconds of look-ups in the file, opened as any DuckDB client would."""
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {"point": [], "prefix": []}
    with duckdb.connect(path, read_only=True) as connection:
        for _ in range(LOOKUPS):
            identity, tokens = int(rng.integers(len(codes_NL))), rng.integers(0, shape.vocab_size, 2).tolist()
            started = time.perf_counter()
            point = connection.execute(POINT, [identity]).fetchall()
            between = time.perf_counter()
            prefix = connection.execute(PREFIX, tokens).fetchall()
            times["prefix"].append(1000 * (time.perf_counter() - between))
            times["point"].append(1000 * (between - started))
            assert point[0][1] == codes_NL[identity].tolist()
            assert len(prefix) == int((codes_NL[:, :2] == tokens).all(axis=1).sum())
    return {f"sql_{name}_ms": round(median(of), 2) for name, of in times.items()}


def measure_index(path: Path, rounds: int) -> dict[str, float]:
    """Return millions of look-ups per second, for all identities in random order."""
    codes_NL, shape = read_codes(path)
    build = seconds(lambda: CodeIndex(codes_NL, shape))
    index, rates = CodeIndex(codes_NL, shape), []
    for number in range(rounds):
        rows = np.random.default_rng(number).permutation(len(codes_NL))
        asked = index.codes_of(rows)
        assert np.array_equal(index.identities_of(asked), rows)
        there = seconds(lambda rows=rows: index.codes_of(rows))
        back = seconds(lambda asked=asked: index.identities_of(asked))
        rates.append((len(rows) / there / 1e6, len(rows) / back / 1e6))
    forth, back = (median(column) for column in zip(*rates, strict=True))
    return {
        "index_seconds": round(build, 3),
        "million_identity_to_code_per_second": round(forth, 1),
        "million_code_to_identity_per_second": round(back, 1),
    }


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    shape, rng = CodeShape(given.length, given.vocab_size), np.random.default_rng(0)
    codes_NL = unpack_codes(rng.permutation(shape.capacity(0))[: given.identities], shape)
    ids = np.arange(given.identities)
    identities = pa.table({"identity_id": ids, "label": [f"person-{number:08d}" for number in ids]})
    identities = identities.append_column("num_samples", pa.array(rng.integers(5, 80, given.identities)))
    with tempfile.TemporaryDirectory() as folder:
        metrics = measure_writing(Path(folder), codes_NL, shape, identities, given.rounds)
        metrics |= measure_sql(Path(folder) / CODES_DUCKDB_FILE, codes_NL, shape)
        metrics |= measure_index(Path(folder) / CODES_DUCKDB_FILE, given.rounds)
    for name, metric in metrics.items():
        print(f"{name}: {metric}")
    print(json.dumps({"benchmark": "code_table", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
