"""Images in random order from the mapped shards against the .rec that they came from.

python benchmarks/random_access.py [--records 100000] [--rounds 7]

The reference seeks and reads with the help of the .idx, as MXIndexedRecordIO does. Both copy the bytes of every
image once; in a second measurement both begin with nothing in the system's cache.
"""

import argparse
import json
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from gif_core.images import Faces
from gif_core.ingestion import SCHEMA
from gif_core.synthetic import draw_jpeg

MAGIC = 0xCED7230A
RECORD, HEADER = struct.Struct("<II"), struct.Struct("<IfQQ")
DRAWN = 2000
"""Number of distinct images; they are repeated."""
SHARD_ROWS, BATCH_ROWS = 25_000, 1000


class RecordFile:
    """A .rec with its .idx, read by seeking."""

    def __init__(self, path: Path) -> None:
        """Read the index."""
        lines = path.with_suffix(".idx").read_text().splitlines()
        self.positions = {int(key): int(position) for key, position in (line.split("\t") for line in lines)}
        self.file = path.open("rb")

    def content(self, key: int) -> bytes:
        """Return the image of one record."""
        self.file.seek(self.positions[key])
        magic, length = RECORD.unpack(self.file.read(RECORD.size))
        if magic != MAGIC:
            raise ValueError(f"record {key} does not begin at the offset in the index")
        record = self.file.read(length)
        HEADER.unpack_from(record)
        return record[HEADER.size :]


def write_records(path: Path, images: Iterable[bytes]) -> None:
    """Write RecordIO: magic, length, label and ids, image, padding to four bytes."""
    with path.open("wb") as records, path.with_suffix(".idx").open("w") as index:
        for key, image in enumerate(images):
            index.write(f"{key}\t{records.tell()}\n")
            record = HEADER.pack(0, 0.0, key, 0) + image
            records.write(RECORD.pack(MAGIC, len(record)) + record + bytes(-len(record) % 4))


def write_shard(path: Path, images: list[bytes]) -> Path:
    """Write the same images as faces of one identity."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for start in range(0, len(images), BATCH_ROWS):
            some = images[start : start + BATCH_ROWS]
            columns = [[0] * len(some), [""] * len(some), some]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
    return path


def forget(paths: Iterable[Path]) -> None:
    """Evict files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def images_per_second(content: Callable[[int], bytes | memoryview], rows: list[int]) -> float:
    """Read every byte of these images."""
    started = time.perf_counter()
    for row in rows:
        bytes(content(row))
    return len(rows) / (time.perf_counter() - started)


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    drawn = [draw_jpeg(0, number, 0) for number in range(min(DRAWN, given.records))]
    images = [drawn[number % len(drawn)] for number in range(given.records)]
    ratios: dict[str, list[float]] = {"warm": [], "cold": []}
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "train.rec"
        write_records(records, images)
        parts = [images[start : start + SHARD_ROWS] for start in range(0, len(images), SHARD_ROWS)]
        shards = [write_shard(Path(folder) / f"{number:05d}.arrow", part) for number, part in enumerate(parts)]
        for number in range(given.rounds):
            rows = np.random.default_rng(number).permutation(given.records).tolist()
            for state in ("cold", "warm"):
                if state == "cold":
                    forget([records, *shards])
                reference = images_per_second(RecordFile(records).content, rows)
                mapped = images_per_second(Faces(shards).content, rows)
                ratios[state].append(mapped / reference)
                print(f"round {number}, {state}: shards {mapped:,.0f} images/s, .rec {reference:,.0f} images/s")
        assert bytes(Faces(shards).content(7)) == RecordFile(records).content(7)
    metrics = {f"{state}_shards_over_rec": round(median(ratios[state]), 2) for state in ratios}
    for name, metric in metrics.items():
        print(f"{name}: {metric}")
    print(json.dumps({"benchmark": "random_access", **vars(given), **metrics}))


if __name__ == "__main__":
    main()
