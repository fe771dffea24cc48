"""Incremental ingestion: when sources have grown, only what an earlier artifact lacks is read."""

# Shapes: R records of all sources, P identities of all sources.

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.images import SourceFile
from gif_core.ingestion.catalogue import Catalogue
from gif_core.readers import Reader
from schemas.artifacts import Manifest
from schemas.files import QUARANTINE_FILE, SOURCES_FILE, Split, identity_table
from schemas.stages import VERSIONS

FILES = pa.schema([("source", pa.int32()), ("name", pa.string()), ("size", pa.int64()), ("digest", pa.string())])
BATCH = 2**16
"""Rows read or written at a time."""


@dataclass(frozen=True)
class Base:
    """An earlier ingestion artifact to build on; empty if everything is read."""

    identities: Mapping[str, pa.Table] = field(default_factory=dict)
    """Table of identities of each split."""
    shards: Mapping[str, int] = field(default_factory=dict)
    """Number of shards of each split."""
    quarantine: Sequence[dict[str, Any]] = ()
    files: Sequence[NDArray[np.uint64]] = ()
    """Short digests of the files of each source."""

    def known_identities(self, catalogue: Catalogue) -> dict[int, int]:
        """Identity ids of the catalogue's identities that have one."""
        ids = {
            (row["source"], row["label"]): row["identity_id"]
            for table in self.identities.values()
            for row in table.to_pylist()
        }
        identities = enumerate(zip(catalogue.source_P.tolist(), catalogue.labels, strict=True))
        return {person: ids[key] for person, key in identities if key in ids} if ids else {}

    def wanted(self, catalogue: Catalogue) -> NDArray[np.bool_]:
        """Records to read: new ones, and all records of grown identities that had no id (too few images)."""
        old_R = self.seen(catalogue)
        identities = len(catalogue.labels)
        unknown_P = np.ones(identities, bool)
        unknown_P[list(self.known_identities(catalogue))] = False
        grown_P = np.bincount(catalogue.person_R[~old_R], minlength=identities) > 0
        return np.asarray(~old_R | (unknown_P & grown_P)[catalogue.person_R], bool)

    def seen(self, catalogue: Catalogue) -> NDArray[np.bool_]:
        """Records of files that the earlier ingestion has read."""
        parts = [np.empty(0, bool)]
        for source, reader in enumerate(catalogue.readers):
            file_R = reader.listing.file_R
            known = self.files[source] if source < len(self.files) else np.empty(0, np.uint64)
            parts.append(np.isin(_marks(reader.files), known)[file_R] if len(known) else np.zeros(len(file_R), bool))
        return np.concatenate(parts)


def open_base(artifact: Artifact) -> Base:
    """Read the tables of an earlier artifact, without its images."""
    tables = {split: pq.read_table(artifact.path(identity_table(split))) for split in get_args(Split)}
    shards = {name: len(artifact.names(f"{name}-")) for name in tables}
    quarantine = pq.read_table(artifact.path(QUARANTINE_FILE)).to_pylist()
    return Base(tables, shards, quarantine, _stored_marks(artifact))


def find_base(store: ArtifactStore, settings: Mapping[str, Any], readers: Sequence[Reader]) -> str | None:
    """The key of the newest artifact since which these sources have only grown.

    If the identical sources are stored already, it is the base of that artifact, so that equal sources keep the same
    key.
    """
    marks: list[NDArray[np.uint64]] = []
    for manifest in store.manifests("ingestion"):
        if not _is_alike(manifest, settings) or store.find("ingestion", manifest.key) is None:
            continue
        if manifest.settings["sources"] == settings["sources"]:
            return manifest.settings.get("grown_from")
        marks = marks or [_marks(reader.files) for reader in readers]
        if _has_only_grown(store.open(store.ref("ingestion", manifest.key)), marks):
            return manifest.key
    return None


def write_files(folder: Path, readers: Sequence[Reader]) -> None:
    """Write the table of all source files, for later ingestions."""
    with pq.ParquetWriter(folder / SOURCES_FILE, FILES) as writer:
        for source, reader in enumerate(readers):
            rows = iter(reader.files)
            while some := list(islice(rows, BATCH)):
                names, sizes, digests = zip(*some, strict=True)
                columns = [
                    pa.array([source] * len(some), pa.int32()),
                    pa.array(names),
                    pa.array(sizes),
                    pa.array(digests),
                ]
                writer.write_batch(pa.record_batch(columns, schema=FILES))


def _is_alike(manifest: Manifest, settings: Mapping[str, Any]) -> bool:
    """Whether an artifact has the same settings, apart from the content of sources and additional sources."""
    if manifest.version != VERSIONS["ingestion"]:
        return False
    before, now = (
        {name: value for name, value in some.items() if name not in ("sources", "grown_from")}
        for some in (manifest.settings, settings)
    )
    old, new = ([_without_content(source) for source in some["sources"]] for some in (manifest.settings, settings))
    return before == now and old == new[: len(old)]


def _without_content(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name not in ("fingerprint", "identities")}


def _has_only_grown(artifact: Artifact, marks: Sequence[NDArray[np.uint64]]) -> bool:
    """Whether all earlier files still exist, unchanged."""
    if SOURCES_FILE not in artifact.names():
        return False
    before = _stored_marks(artifact)
    return len(before) <= len(marks) and all(
        bool(np.isin(old, now).all()) for old, now in zip(before, marks, strict=False)
    )


def _stored_marks(artifact: Artifact) -> list[NDArray[np.uint64]]:
    marks: dict[int, list[NDArray[np.uint64]]] = {}
    for batch in pq.ParquetFile(artifact.path(SOURCES_FILE)).iter_batches(BATCH):
        sources = batch.column("source").to_numpy()
        values = _marks([SourceFile(row["name"], row["size"], row["digest"]) for row in batch.to_pylist()])
        for source in np.unique(sources).tolist():
            marks.setdefault(source, []).append(values[sources == source])
    return [np.concatenate(marks[source]) for source in sorted(marks)]


def _marks(files: Sequence[SourceFile]) -> NDArray[np.uint64]:
    """A short digest of each file's name, size and digest: millions of them fit in memory."""
    values = (
        hashlib.blake2b(f"{name}\0{size}\0{mark}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
        for name, size, mark in files
    )
    return np.frombuffer(b"".join(values), np.uint64)
