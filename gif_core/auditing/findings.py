"""Which labels are wrong: identities that are one person twice, identities that hold two, images of somebody else."""

# Shapes: N images, P identities, Q groups that are searched for, K candidates, D dimensions.

from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from gif_core.auditing.calibration import ORDINARY, Accepted, accept
from gif_core.auditing.grouping import Grouping, group_identities, part_distances
from gif_core.auditing.neighbours import Neighbours, find_neighbours
from gif_core.auditing.vectors import Floats, Ints, Vectors, distances
from schemas.errors import GifError

Kind = Literal["duplicate", "mixed", "flipped", "stray"]
KINDS: Final[dict[Kind, str]] = {
    "duplicate": "two identities are one person: their images get one label",
    "mixed": "an identity holds two persons: the images of the second get another label",
    "flipped": "an image belongs to another identity: it gets that label",
    "stray": "an image is unlike its identity, and no other is surely its own: it is left out",
}
NEW: Final = -1
"""In place of an identity: a new one."""
NOWHERE: Final = -2
"""In place of an identity: the images are left out."""


class NothingToAuditError(GifError, ValueError):
    """The faces are too few to compare, or too unlike."""


@dataclass(frozen=True)
class Finding:
    """Images of one identity that get another label or none."""

    kind: Kind
    person: int
    """Their identity."""
    to: int
    """The identity they belong to, NEW or NOWHERE."""
    rows: Ints
    """The images."""
    score: float
    """A ratio of distances, at least 1; the larger, the surer."""


@dataclass(frozen=True)
class Findings:
    """All findings, the surest of each kind first, and the thresholds behind them."""

    findings: list[Finding]
    group_threshold: float
    """Mean cosine from which images of an identity belong together."""
    ordinary: float
    """Distance that 95 % of the parts of one person do not exceed; 1 is the mean of images."""
    accepted: dict[str, Accepted] = field(default_factory=dict)
    """Distances up to which the nearest other identity is the same person, with estimated precision."""

    def of(self, kind: Kind) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]


def find_noise(
    features_ND: Floats, person_N: Ints, *, precision: float = 0.9, min_images: int = 3, seed: int = 0
) -> Findings:
    """Find wrong labels from image features and labels 0 … P - 1.

    Args:
        features_ND: Unit features of all images; they may be a mapped file.
        person_N: Identity of each image.
        precision: Estimated share of duplicate and flipped findings that should be right.
        min_images: Images from which a second person of an identity gets a label of its own.
        seed: Seed of the samples that thresholds are found on.
    """
    rng = np.random.default_rng([seed, 0])
    vectors = Vectors(features_ND, person_N)
    grouping = group_identities(vectors, rng)
    parts = part_distances(vectors, grouping, rng)
    if not len(parts):
        raise NothingToAuditError("no two images of one identity are alike: choose another encoder or model")
    ordinary = float(np.quantile(parts, ORDINARY))
    audit = _Audit(grouping, precision, min_images, ordinary)
    duplicates = audit.find_duplicates()
    others = audit.place_others(duplicates)
    findings = [*_with_all_rows(duplicates, others, person_N), *others]
    findings.sort(key=lambda finding: (list(KINDS).index(finding.kind), -finding.score))
    return Findings(findings, grouping.threshold, ordinary, audit.accepted)


class _Audit:
    """The steps of `find_noise` after images are grouped."""

    def __init__(self, grouping: Grouping, precision: float, min_images: int, ordinary: float) -> None:
        self.grouping, self.precision, self.min_images, self.ordinary = grouping, precision, min_images, ordinary
        self.identities = grouping.identities
        self.mean_PD, self.size_P = grouping.mean_GD[: self.identities], grouping.size_G[: self.identities]
        self.accepted: dict[str, Accepted] = {}

    def find_duplicates(self) -> list[Finding]:
        """Identities whose main groups are one person; the smaller gets the label of the larger."""
        everyone = np.arange(self.identities)
        found = find_neighbours(self.mean_PD, self.size_P, everyone, self.mean_PD, self.size_P, everyone)
        threshold = self._accept("duplicate", found)
        findings, root_P = [], everyone.copy()
        for person in np.argsort(found.nearest_Q, kind="stable").tolist():
            if found.nearest_Q[person] > threshold:
                break
            a, b = _root(root_P, person), _root(root_P, int(found.identity_Q[person]))
            if a != b:
                small, large = (a, b) if (self.size_P[a], -a) < (self.size_P[b], -b) else (b, a)
                root_P[small] = large
                score = self.ordinary / max(float(found.nearest_Q[person]), 1e-6)
                findings.append(Finding("duplicate", small, large, np.empty(0, np.int64), score))
        return [replace(finding, to=_root(root_P, finding.to)) for finding in findings]

    def place_others(self, duplicates: list[Finding]) -> list[Finding]:
        """Say where the groups belong that are not the main group of their identity."""
        groups = np.arange(self.identities, len(self.grouping.person_G))
        if not len(groups):
            return []
        united_P, mean_PD, size_P = self._unite(duplicates)
        person_Q = united_P[self.grouping.person_G[groups]]
        mean_QD, size_Q = self.grouping.mean_GD[groups], self.grouping.size_G[groups]
        kept = np.unique(united_P)
        found = find_neighbours(mean_QD, size_Q, person_Q, mean_PD[kept], size_P[kept], kept)
        own_Q = distances(mean_QD, size_Q, mean_PD[person_Q], size_P[person_Q])
        threshold = self._accept("flipped", found)
        rows = _rows_of_groups(self.grouping)
        findings = [
            self._place(int(self.grouping.person_G[group]), rows[group], float(own_Q[place]), found, place, threshold)
            for place, group in enumerate(groups.tolist())
        ]
        return [finding for finding in findings if finding]

    def _place(
        self, person: int, rows: Ints, own: float, found: Neighbours, place: int, threshold: float
    ) -> Finding | None:
        """Where one group belongs: to another identity, to a new one, nowhere, or None where it is."""
        near, several = float(found.nearest_Q[place]), len(rows) >= self.min_images
        if near <= threshold and near < own:
            kind: Kind = "mixed" if several else "flipped"
            return Finding(kind, person, int(found.identity_Q[place]), rows, own / max(near, 1e-6))
        if own <= self.ordinary:
            return None
        return Finding("mixed" if several else "stray", person, NEW if several else NOWHERE, rows, own / self.ordinary)

    def _unite(self, duplicates: list[Finding]) -> tuple[Ints, Floats, Ints]:
        """The identity that stands for each one, and means and sizes in which duplicates are one."""
        united_P = np.arange(self.identities)
        for finding in duplicates:
            united_P[finding.person] = finding.to
        size_P: Ints = np.bincount(united_P, self.size_P, self.identities).astype(np.int64)
        mean_PD = np.zeros_like(self.mean_PD)
        np.add.at(mean_PD, united_P, self.mean_PD * self.size_P[:, None].astype(np.float32))
        mean_PD /= np.maximum(size_P, 1)[:, None].astype(np.float32)
        return united_P, mean_PD, size_P

    def _accept(self, kind: Kind, found: Neighbours) -> float:
        self.accepted[kind] = accept(found.nearest_Q, found.second_Q, precision=self.precision, ordinary=self.ordinary)
        return self.accepted[kind].threshold


def _rows_of_groups(grouping: Grouping) -> list[Ints]:
    order = np.argsort(grouping.group_N, kind="stable")
    return np.split(order, np.cumsum(grouping.size_G)[:-1])


def _root(root_P: Ints, person: int) -> int:
    while root_P[person] != person:
        person = int(root_P[person])
    return person


def _with_all_rows(duplicates: list[Finding], others: list[Finding], person_N: Ints) -> list[Finding]:
    """Let duplicates have all images of their identity that belong nowhere else."""
    person_N = person_N.copy()
    for finding in others:
        person_N[finding.rows] = NOWHERE
    order = np.argsort(person_N, kind="stable")
    persons = np.array([finding.person for finding in duplicates], np.int64)
    starts, ends = (np.searchsorted(person_N[order], persons, side) for side in ("left", "right"))
    return [
        replace(each, rows=order[start:end])
        for each, start, end in zip(duplicates, starts.tolist(), ends.tolist(), strict=True)
    ]
