"""Ingestion: faces of any source → Arrow shards, dense identity ids, and a split of people kept aside."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gif_core.faces import ShardWriter, decode
from gif_core.readers import Reader, open_reader
from schemas.errors import GifError
from schemas.ingestion import IngestionConfig, Source

IDENTITIES = pa.schema(
    [("identity_id", pa.int64()), ("label", pa.string()), ("source", pa.int32()), ("num_samples", pa.int64())]
)
QUARANTINE = pa.schema([("source", pa.int32()), ("record", pa.string()), ("reason", pa.string())])


class SourceChangedError(GifError, RuntimeError):
    """A source is not what it was when its key was worked out."""


@dataclass(frozen=True)
class IngestionStep:
    """Progress: images seen so far, of how many."""

    images: int
    total: int


@dataclass(frozen=True)
class Sample:
    """One image of a source, read and checked; `fault` says why it cannot be used."""

    name: str
    content: bytes
    fault: str | None


@dataclass
class Split:
    """The people of one split: their shards and their table."""

    writer: ShardWriter
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, label: str, source: int, samples: list[Sample]) -> None:
        """Give a person the next identity id."""
        identity_id = len(self.rows)
        for sample in samples:
            self.writer.add(identity_id, sample.name, sample.content)
        row = {"identity_id": identity_id, "label": label, "source": source, "num_samples": len(samples)}
        self.rows.append(row)


def describe_sources(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """What the sources hold: it changes when a source has grown, not when it has moved."""
    return describe_readers([open_reader(source) for source in sources])


def describe_readers(readers: Sequence[Reader]) -> list[dict[str, Any]]:
    """What the readers found in their sources when they were opened."""
    return [reader.describe() for reader in readers]


def is_held_out(source: int, label: str, share: float) -> bool:
    """Whether a person is kept aside: decided by name, so that it stays so when the source grows."""
    digest = hashlib.sha256(f"{source}/{label}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share


def ingest(
    config: IngestionConfig, readers: Sequence[Reader], folder: Path, *, workers: int = 1
) -> Iterator[IngestionStep]:
    """Write the shards and tables of a faces artifact; the bytes do not depend on the number of workers."""
    total = sum(identity.num_samples for reader in readers for identity in reader.identities)
    splits = {name: Split(ShardWriter(folder, name, config.shard_bytes)) for name in ("identities", "held_out")}
    quarantine: list[dict[str, Any]] = []
    images = 0
    for source, label, samples in _read_people(readers, workers):
        images += len(samples)
        good = [sample for sample in samples if sample.fault is None]
        quarantine += [
            {"source": source, "record": sample.name, "reason": sample.fault} for sample in samples if sample.fault
        ]
        if len(good) >= config.min_samples:
            split = "held_out" if is_held_out(source, label, config.held_out) else "identities"
            splits[split].add(label, source, good)
        yield IngestionStep(images, total)
    _write_tables(folder, splits, quarantine)


def _read_people(readers: Sequence[Reader], workers: int) -> Iterator[tuple[int, str, list[Sample]]]:
    """Every person with all samples, in order, read ahead by a pool of threads."""
    for source, reader in enumerate(readers):
        threads = workers if reader.waits else 1
        with ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(reader.identities), 4 * threads):
                chunk = range(start, min(start + 4 * threads, len(reader.identities)))
                read = pool.map(lambda identity, reader=reader: _read_person(reader, identity), chunk)
                for identity, samples in zip(chunk, read, strict=True):
                    yield source, reader.identities[identity].label, samples


def _read_person(reader: Reader, identity: int) -> list[Sample]:
    return [_read_sample(reader, identity, i) for i in range(reader.identities[identity].num_samples)]


def _read_sample(reader: Reader, identity: int, sample: int) -> Sample:
    name = reader.name(identity, sample)
    try:
        content = reader.read(identity, sample)
        decode(content)
    except (ValueError, OSError) as error:
        return Sample(name, b"", str(error))
    return Sample(name, content, None)


def _write_tables(folder: Path, splits: dict[str, Split], quarantine: list[dict[str, Any]]) -> None:
    if not splits["identities"].rows:
        raise ValueError(f"no identity is left to train on; {len(quarantine)} images could not be used")
    counts = [row["num_samples"] for row in splits["held_out"].rows]
    if counts and (len(counts) < 2 or max(counts) < 2):
        raise ValueError(
            f"ingestion.held_out keeps {len(counts)} people aside, with at most {max(counts)} images each: nothing "
            "to verify, which takes two people, one of them with two images. Raise it, or set it to 0"
        )
    for name, split in splits.items():
        split.writer.flush()
        pq.write_table(pa.Table.from_pylist(split.rows, IDENTITIES), folder / f"{name}.parquet")
    pq.write_table(pa.Table.from_pylist(quarantine, QUARANTINE), folder / "quarantine.parquet")
