"""Ingestion: faces of any source → Arrow shards, dense identity ids, and a split of held-out identities.

Each split is read identity by identity and written shard by shard. The content of a shard depends only on the sources
and settings, so the bytes do not depend on the number of workers, and a killed ingestion resumes after its last
finished shard.
"""

# Shapes: R records of all sources, P identities of all sources.

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.images import BlockChecker, ImageLimits
from gif_core.ingestion.catalogue import Catalogue, Refused, Unit
from gif_core.ingestion.incremental import Base, write_files
from gif_core.ingestion.relabelled import DROPPED, relabel
from gif_core.ingestion.relabelling import read_relabelling
from gif_core.ingestion.splits import SplitWriter
from gif_core.readers import DetectingReader, Reader
from schemas.errors import GifError
from schemas.files import QUARANTINE_FILE, WORK_FOLDER, Split, identity_table
from schemas.ingestion import IngestionConfig

IDENTITIES = pa.schema(
    [("identity_id", pa.int64()), ("label", pa.string()), ("source", pa.int32()), ("num_samples", pa.int64())]
)
QUARANTINE = pa.schema([("source", pa.int32()), ("record", pa.string()), ("reason", pa.string())])
LEFT_OUT = "identity left out"
"""Start of a quarantine reason that is about an identity rather than an image."""
EXAMPLES = 5
"""Bad images that an error message lists."""


class SourceChangedError(GifError, RuntimeError):
    """A source has changed since its key was computed."""


class TooManyBadImagesError(GifError, ValueError):
    """More images are bad than `max_bad_fraction` allows."""


@dataclass(frozen=True)
class IngestionStep:
    """Progress: images and bytes processed so far, and the total number of images."""

    images: int
    total: int
    bytes: int


def image_limits(config: IngestionConfig) -> ImageLimits:
    """The limits of images that the settings allow."""
    return ImageLimits(config.smallest_side, config.largest_side)


def describe_readers(readers: Sequence[Reader]) -> list[dict[str, Any]]:
    """The content of the sources, for the key: it changes when a source grows, not when it is moved."""
    return [reader.describe() for reader in readers]


def place_of(source: int, label: str) -> float:
    """Where an identity is among all, in [0, 1): by its label, so that it does not change when the source grows."""
    digest = hashlib.sha256(f"{source}/{label}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def ingest(
    config: IngestionConfig,
    readers: Sequence[Reader],
    folder: Path,
    *,
    workers: int = 1,
    base: Base | None = None,
) -> Iterator[IngestionStep]:
    """Write the shards and tables of an ingestion artifact; with a `base`, only what is new since then."""
    (folder / WORK_FOLDER).mkdir(parents=True, exist_ok=True)
    with _detecting(readers, folder / WORK_FOLDER, workers):
        catalogue = Catalogue(readers)
        for address in config.relabel or ():
            relabel(catalogue, read_relabelling(address))
        ingestion = Ingestion(config, catalogue, folder, base or Base())
        yield from ingestion.read(workers)
        ingestion.write_tables()


@contextmanager
def _detecting(readers: Sequence[Reader], work: Path, workers: int) -> Iterator[None]:
    """Let readers find faces in photographs; what they found is kept in the work folder until the end."""
    with ExitStack() as stack:
        for number, reader in enumerate(readers):
            if isinstance(reader, DetectingReader):
                stack.enter_context(reader.detecting(work / f"detected-{number}", workers))
        yield


class Ingestion:
    """One run of the stage: the identities of each split, the records to read, and the rejected ones."""

    def __init__(self, config: IngestionConfig, catalogue: Catalogue, folder: Path, base: Base) -> None:
        """Plan the splits; finished shards of an earlier attempt count as done."""
        self.config, self.catalogue, self.folder, self.base = config, catalogue, folder, base
        self.check = BlockChecker(image_limits(config), decode_all=config.decode_all)
        self.known = base.known_identities(catalogue)
        self.wanted_R = base.wanted(catalogue) & ~catalogue.dropped_R
        self.held_over = self._held_over()
        place_P, (begin, end) = self._places(), config.shares
        held_out_P = (place_P >= begin) & (place_P < end)
        self.splits = [self._plan("identities", place_P >= end), self._plan("held_out", held_out_P)]
        self.total = sum(len(split.records) for split in self.splits)

    def read(self, workers: int) -> Iterator[IngestionStep]:
        """Read, check and write all records that are not finished."""
        self._check_fraction()
        done, size = sum(split.progress.position for split in self.splits), 0
        for split in self.splits:
            with split:
                spool = self.folder / WORK_FOLDER / "spool"
                for unit in self.catalogue.read_ahead(split.left, self.check, workers, spool):
                    size += self._take(split, unit)
                    done += len(unit.records)
                    yield IngestionStep(done, self.total, size)
                split.finish()
        yield IngestionStep(done, self.total, size)

    def _take(self, split: SplitWriter, unit: Unit) -> int:
        """Pass a unit to the split, in runs of images of one identity; returns their bytes."""
        persons = self.catalogue.person_R[unit.records]
        cuts = {0, *(np.flatnonzero(np.diff(persons)) + 1).tolist(), len(persons)}
        cuts |= unit.bad.keys() | {place + 1 for place in unit.bad}
        for start, end in pairwise(sorted(cuts)):
            if start in unit.bad:
                split.refuse(int(unit.records[start]), unit.bad[start])
                self._check_fraction()
            else:
                split.take(int(persons[start]), unit.names[start:end], unit.images[start:end])
        return sum(map(len, unit.images))

    def write_tables(self) -> None:
        """Write the tables of identities, of the quarantine, and of the files of the sources."""
        tables: dict[Split, pa.Table] = {split.name: self._identity_table(split) for split in self.splits}
        quarantine = self._quarantine()
        _check_identities(tables["identities"], tables["held_out"], len(quarantine))
        for name, table in tables.items():
            pq.write_table(table, self.folder / identity_table(name))
        rows = [row._asdict() for row in quarantine]
        pq.write_table(pa.Table.from_pylist(rows, QUARANTINE), self.folder / QUARANTINE_FILE)
        write_files(self.folder, self.catalogue.readers)

    def _plan(self, name: Split, identities_P: NDArray[np.bool_]) -> SplitWriter:
        enough_P = self.catalogue.counts_P >= self.config.min_samples
        ids = {person: identity_id for person, identity_id in self.known.items() if identities_P[person]}
        return SplitWriter(
            self.folder,
            name,
            work=self.folder / WORK_FOLDER,
            records=self.catalogue.by_person(identities_P & enough_P, self.wanted_R),
            ids=ids,
            first_shard=self.base.shards.get(name, 0),
            min_samples=self.config.min_samples,
            shard_bytes=self.config.shard_bytes,
        )

    def _places(self) -> NDArray[np.float64]:
        identities = zip(self.catalogue.source_P.tolist(), self.catalogue.labels, strict=True)
        return np.fromiter((place_of(source, label) for source, label in identities), np.float64)

    def _held_over(self) -> list[Refused]:
        """Rows of the base's quarantine about records that are not read again."""
        if not self.base.quarantine:
            return []
        again = self.base.seen(self.catalogue) & self.wanted_R
        read = {self.catalogue.place(record) for record in np.flatnonzero(again).tolist()}
        read |= {(row.source, row.record) for row in self.catalogue.refused}
        identities = {
            (int(self.catalogue.source_P[person]), self.catalogue.labels[person])
            for person in np.unique(self.catalogue.person_R[again]).tolist()
        }
        rows = [Refused(**row) for row in self.base.quarantine if not row["reason"].startswith(DROPPED)]
        read_again = read | identities
        return [row for row in rows if (row.source, row.record) not in read_again]

    def _check_fraction(self) -> None:
        bad = sum(len(split.progress.bad) for split in self.splits) + len(self.catalogue.refused)
        bad += sum(not row.reason.startswith(LEFT_OUT) for row in self.held_over)
        total = len(self.catalogue.person_R) + len(self.catalogue.refused)
        if bad > self.config.max_bad_fraction * total:
            raise TooManyBadImagesError(self._explain(bad, total))

    def _explain(self, bad: int, total: int) -> str:
        rows = [row for row in self._quarantine() if not row.reason.startswith((LEFT_OUT, DROPPED))]
        reasons = Counter(row.reason.partition(":")[0] for row in rows)
        examples = "".join(f"\n  {row.record}: {row.reason}" for row in rows[:EXAMPLES])
        return (
            f"{bad} of {total} images are bad, more than ingestion.max_bad_fraction={self.config.max_bad_fraction} "
            f"allows ({', '.join(f'{count} {reason}' for reason, count in reasons.most_common())}). "
            f"Repair the source or raise the setting. The first of them:{examples}"
        )

    def _quarantine(self) -> list[Refused]:
        """All rows: of the base, the listings, lists of labels, bad images, and identities left with too few images."""
        bad = [self.catalogue.refuse(*row) for split in self.splits for row in split.progress.bad]
        return [*self.held_over, *self.catalogue.refused, *self.catalogue.dropped, *bad, *self._left_out()]

    def _left_out(self) -> Iterator[Refused]:
        """Identities that had enough images before bad ones were rejected."""
        for split in self.splits:
            spoilt = Counter(int(self.catalogue.person_R[record]) for record, _ in split.progress.bad)
            for person, bad in sorted(spoilt.items()):
                if person not in split.ids:
                    good = split.progress.good[person]
                    reason = f"{LEFT_OUT}: only {good} of its {good + bad} images can be used"
                    yield Refused(int(self.catalogue.source_P[person]), self.catalogue.labels[person], reason)

    def _identity_table(self, split: SplitWriter) -> pa.Table:
        """The identities of a split, sorted by identity id; those of the base come first."""
        before = self.base.identities.get(split.name)
        counts = (
            dict(zip(before["identity_id"].to_pylist(), before["num_samples"].to_pylist(), strict=True))
            if before
            else {}
        )
        identities = sorted(split.ids.items(), key=lambda item: item[1])
        rows = [
            {
                "identity_id": identity_id,
                "label": self.catalogue.labels[person],
                "source": int(self.catalogue.source_P[person]),
                "num_samples": counts.get(identity_id, 0) + split.progress.good[person],
            }
            for person, identity_id in identities
        ]
        return pa.Table.from_pylist(rows, IDENTITIES)


def _check_identities(identities: pa.Table, held_out: pa.Table, refused: int) -> None:
    if not len(identities):
        raise ValueError(f"no identity is left to train on; {refused} images could not be used")
    counts = held_out["num_samples"].to_pylist()
    if counts and (len(counts) < 2 or max(counts) < 2):
        raise ValueError(
            f"ingestion.held_out holds out {len(counts)} identities with at most {max(counts)} images each: "
            "verification needs two identities, one of them with two images. Raise it, or set it to 0"
        )
