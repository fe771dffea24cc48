"""Ingestion of RecordIO against a plain sequential copy of the same file with sha256; both end on the disk.

Ingestion lists the records, checks every image, groups by identity, writes Arrow shards with their tables, and
publishes them in a local store: digests, fsync, manifest. The copy reads, hashes, writes and fsyncs.

    python benchmarks/ingestion.py [--records 400000] [--side 112] [--rounds 3]

The peak memory is that of the whole process: `--records 5000000 --side 32 --rounds 1` shows that it is bounded.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import struct
import tempfile
import time
from pathlib import Path

import cv2

from gif_core.artifacts import ArtifactStore
from gif_core.ingestion import ingest
from gif_core.ingestion.stage import STORE_SECONDS
from gif_core.readers import open_reader
from gif_core.runtime import Ticker
from gif_core.synthetic import draw_face
from schemas.ingestion import IngestionConfig, RecordIOSource

MAGIC = 0xCED7230A
BY_PERSON = 50
DISTINCT = 400


def write_records(path: Path, records: int, side: int) -> None:
    """Write identities of fifty images each, which repeat a few hundred synthetic faces."""
    options = [cv2.IMWRITE_JPEG_QUALITY, 95]
    faces = [cv2.resize(draw_face(0, identity, 0)[..., ::-1], (side, side)) for identity in range(DISTINCT)]
    images = [cv2.imencode(".jpg", face, options)[1].tobytes() for face in faces]
    with path.open("wb") as rec, path.with_suffix(".idx").open("w") as idx:
        for key in range(records):
            data = struct.pack("<IfQQ", 0, key // BY_PERSON, key, 0) + images[key % DISTINCT]
            idx.write(f"{key}\t{rec.tell()}\n")
            rec.write(struct.pack("<II", MAGIC, len(data)) + data + bytes(-len(data) % 4))


def copy(source: Path, target: Path) -> None:
    """Read, hash, write, fsync."""
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as write:
        while block := read.read(2**20):
            digest.update(block)
            write.write(block)
        write.flush()
        os.fsync(write.fileno())


def publish(source: Path, folder: Path, workers: int) -> None:
    """Run the whole stage as the pipeline does."""
    config = IngestionConfig(sources=(RecordIOSource(path=str(source)),))
    store = ArtifactStore(str(folder))
    with store.draft(store.ref("ingestion", "0" * 64), {}, {}) as draft:
        readers = [open_reader(source) for source in config.sources]
        store_due = Ticker(STORE_SECONDS)
        for _ in ingest(config, readers, draft.folder, workers=workers):
            if store_due():
                store.begin_storing(draft, "*.arrow")
        store.publish(draft)


def seconds(work: object, *arguments: object) -> float:
    """Return the seconds a call takes."""
    start = time.perf_counter()
    work(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    """Measure both in turn and print the ratio of their speeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--side", type=int, default=112)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "train.rec"
        write_records(source, options.records, options.side)
        size = source.stat().st_size
        print(f"{options.records:,} records, {size / 1e9:.2f} GB, {size / options.records:.0f} bytes each")
        ratios = []
        for number in range(options.rounds):
            os.sync()
            copied = seconds(copy, source, folder / "copy")
            (folder / "copy").unlink()
            os.sync()
            ingested = seconds(publish, source, folder / "store", options.workers)
            shutil.rmtree(folder / "store")
            ratios.append(copied / ingested)
            print(f"round {number}: copy {size / copied / 1e6:.0f} MB/s, ingestion {size / ingested / 1e6:.0f} MB/s")
    ratio = statistics.median(ratios)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"ingestion / copy with sha256: {ratio:.2f}, peak memory {peak:.2f} GiB")
    metrics = {"records": options.records, "bytes": size, "ratio": round(ratio, 3), "peak_gib": round(peak, 2)}
    print(json.dumps({"benchmark": "ingestion", **metrics}))


if __name__ == "__main__":
    main()
