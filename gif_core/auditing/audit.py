"""An audit of labels: faces and a network in; findings, a page of pictures, a list and a summary out."""

# Shapes: N images, P identities of both splits.

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import Artifact
from gif_core.auditing.features import Network, map_features
from gif_core.auditing.findings import KINDS, NEW, Finding, Findings, NothingToAuditError, find_noise
from gif_core.images import Faces
from gif_core.ingestion import Change, write_relabelling
from gif_core.runtime import Progress
from schemas.files import Split, identity_table

LIST_FILE: Final = "relabel.csv"
PAGE_FILE: Final = "audit.html"
SUMMARY_FILE: Final = "audit.json"
VERSION: Final = 1
"""Version of the summary."""


@dataclass(frozen=True)
class AuditedFaces:
    """The faces of both splits of an ingestion; held-out identities are numbered after those to train on."""

    artifact: Artifact
    faces: Faces
    person_N: NDArray[np.int64]
    labels: list[str]
    sources: list[int]

    @classmethod
    def open(cls, artifact: Artifact, workers: int = 1) -> "AuditedFaces":
        """Map all shards of an ingestion."""
        shards, persons, tables, first = [], [np.empty(0, np.int64)], [], 0
        for split in get_args(Split):
            paths = [artifact.path(name) for name in artifact.names(f"{split}-")]
            tables.append(_identities(artifact, split))
            persons.append(Faces(paths).labels_N + first)
            shards += paths
            first += len(tables[-1])
        table = pa.concat_tables(tables)
        faces = Faces(shards, workers=workers)
        return cls(artifact, faces, np.concatenate(persons), table["label"].to_pylist(), table["source"].to_pylist())


@dataclass(frozen=True)
class Audit:
    """What was found in the labels of some faces, and by which network."""

    given: AuditedFaces
    network: str
    findings: Findings

    @cached_property
    def changes(self) -> list[Change]:
        """The findings as rows of a list for `ingestion.relabel`."""
        names = _NewLabels(self.given)
        return [change for finding in self.findings.findings for change in self._changes(finding, names)]

    def summary(self) -> dict[str, Any]:
        """Counts and thresholds as plain values."""
        found = {kind: self.findings.of(kind) for kind in KINDS}
        return {
            "version": VERSION,
            "faces": str(self.given.artifact.ref),
            "network": self.network,
            "identities": len(self.given.labels),
            "images": len(self.given.person_N),
            "found": {kind: len(some) for kind, some in found.items()},
            "found_images": {kind: sum(len(one.rows) for one in some) for kind, some in found.items()},
            "moved": sum(bool(change.new_label) for change in self.changes),
            "dropped": sum(not change.new_label for change in self.changes),
            "group_threshold": self.findings.group_threshold,
            "ordinary_distance": self.findings.ordinary,
            "accepted": {name: asdict(each) for name, each in self.findings.accepted.items()},
        }

    def write(self, folder: Path, *, pictures: int = 40) -> None:
        """Write the list, the summary and the page with up to `pictures` findings of each kind."""
        from gif_core.auditing.page import write_audit_page

        folder.mkdir(parents=True, exist_ok=True)
        write_relabelling(folder / LIST_FILE, self.changes)
        (folder / SUMMARY_FILE).write_text(f"{json.dumps(self.summary(), indent=2)}\n", encoding="utf-8")
        write_audit_page(folder / PAGE_FILE, self, pictures)

    def _changes(self, finding: Finding, names: "_NewLabels") -> Iterator[Change]:
        """One row per image. What belongs to an identity of another source is left out: sources share none."""
        source, label = self.given.sources[finding.person], self.given.labels[finding.person]
        new_label = names.make(source, label) if finding.to == NEW else ""
        if finding.to >= 0 and self.given.sources[finding.to] == source:
            new_label = self.given.labels[finding.to]
        for row in finding.rows.tolist():
            name = self.given.faces.name(row)
            yield Change(source, name, label, new_label, finding.kind, f"{finding.score:.4f}")


def audit_faces(
    given: AuditedFaces, network: Network, work: Path, *, precision: float = 0.9, min_images: int = 3
) -> Generator[Progress, None, Audit]:
    """Find wrong labels among faces; features are in the folder `work` meanwhile, two bytes per dimension and image.

    Args:
        given: The faces.
        network: An encoder or a trained model.
        work: Folder for the features, which are removed at the end.
        precision: Estimated share of duplicate and flipped findings that should be right.
        min_images: Images from which a second person of an identity gets a label of its own.
    """
    total = len(given.person_N)
    if len(given.labels) < 2 or total < 2 * len(given.labels):
        raise NothingToAuditError(
            f"{total:,} images of {len(given.labels):,} identities are too few to compare: an audit needs two "
            "identities, and two images of each on average"
        )
    work.mkdir(parents=True, exist_ok=True)
    path = work / ".features.npy"
    try:
        features_ND = yield from map_features(network.features(given.faces, np.arange(total)), path, total)
        yield Progress("comparing identities", 0, None)
        findings = find_noise(features_ND, given.person_N, precision=precision, min_images=min_images)
    finally:
        path.unlink(missing_ok=True)
    return Audit(given, network.name, findings)


class _NewLabels:
    """Labels that their sources do not have yet, such as LABEL~2."""

    def __init__(self, given: AuditedFaces) -> None:
        self.taken = set(zip(given.sources, given.labels, strict=True))

    def make(self, source: int, label: str) -> str:
        number = 2
        while (source, f"{label}~{number}") in self.taken:
            number += 1
        self.taken.add((source, f"{label}~{number}"))
        return f"{label}~{number}"


def _identities(artifact: Artifact, split: Split) -> pa.Table:
    table = pq.read_table(artifact.path(identity_table(split)), columns=["identity_id", "label", "source"])
    return table.sort_by("identity_id")
