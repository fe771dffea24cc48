"""Templates: the quality-weighted sum of an identity's features; its direction is what faces are compared with."""

# Shapes: N identities, B images, D dimensions.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Templates:
    """Identities with their weighted sums. Sums of two enrolments of one identity add up."""

    labels: list[str]
    sums_ND: Floats
    digests: list[list[str]] = field(default_factory=list)
    """SHA-256 of the enrolled image files of each identity: enrolling one of them again changes nothing.

    Empty where templates are only searched: of a million identities they take longer to read than all the rest.
    """

    def __len__(self) -> int:
        """Number of identities."""
        return len(self.labels)

    @property
    def images(self) -> int:
        """Number of enrolled images."""
        return sum(map(len, self.digests))

    @property
    def vectors_ND(self) -> Floats:  # noqa: N802
        """Templates of unit length."""
        return normalize(self.sums_ND)

    @classmethod
    def of(cls, labels: Sequence[str], features_BD: Floats, weights_B: Sequence[float], digests: Sequence[str]) -> Self:
        """The templates of images with these labels: Σ weight · feature."""
        place = {label: row for row, label in enumerate(sorted(set(labels)))}
        rows = np.array([place[label] for label in labels], np.int64)
        sums_ND = np.zeros((len(place), features_BD.shape[1]), np.float32)
        np.add.at(sums_ND, rows, np.asarray(weights_B, np.float32)[:, None] * features_BD)
        images: list[list[str]] = [[] for _ in place]
        for digest, row in zip(digests, rows.tolist(), strict=True):
            images[row].append(digest)
        return cls(list(place), sums_ND, images)

    def without(self, labels: Iterable[str]) -> "Templates":
        """All identities but these."""
        dropped = set(labels)
        rows = [row for row, label in enumerate(self.labels) if label not in dropped]
        return Templates([self.labels[row] for row in rows], self.sums_ND[rows], [self.digests[row] for row in rows])


def merge(parts: Sequence[Templates]) -> Templates:
    """One row per identity, by label in the order of their first occurrence; sums of equal labels are added."""
    if len(parts) == 1:
        return parts[0]
    rows: dict[str, int] = {}
    for part in parts:
        for label in part.labels:
            rows.setdefault(label, len(rows))
    width = max((part.sums_ND.shape[1] for part in parts), default=0)
    sums_ND = np.zeros((len(rows), width), np.float32)
    digests: list[list[str]] = [[] for _ in rows]
    for part in parts:
        sums_ND[[rows[label] for label in part.labels]] += part.sums_ND
        for label, some in zip(part.labels, part.digests, strict=bool(part.digests)):
            digests[rows[label]] += some
    return Templates(list(rows), sums_ND, digests if any(part.digests for part in parts) else [])


def normalize(rows_ND: Floats) -> Floats:
    """Rows of unit length; rows of zeros stay."""
    lengths_N = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    unit_ND: Floats = rows_ND / np.maximum(lengths_N, np.float32(1e-12))
    return unit_ND
