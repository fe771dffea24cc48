"""The groups of all identities: images that belong together, their sizes and means."""

# Shapes: N images, P identities, G groups, D dimensions, n images of an identity, M sampled pairs.

from dataclasses import dataclass
from typing import Final

import numpy as np

from gif_core.auditing.calibration import best_threshold
from gif_core.auditing.groups import group_images
from gif_core.auditing.vectors import Floats, Ints, Scatter, Vectors, distances

PAIRS: Final = 100_000
"""Pairs of images that the threshold between one person and two is found on."""
SAMPLED: Final = 20_000
"""Identities of which parts are compared with each other."""


@dataclass(frozen=True)
class Grouping:
    """Groups of images: the first P are the largest of each identity, others follow."""

    group_N: Ints
    person_G: Ints
    size_G: Ints
    mean_GD: Floats
    """Whitened means."""
    whitening_DD: Floats
    threshold: float
    """Mean cosine from which groups of an identity are joined."""

    @property
    def identities(self) -> int:
        """Number of identities."""
        return int(self.person_G.max()) + 1


def group_identities(vectors: Vectors, rng: np.random.Generator) -> Grouping:
    """Find the groups of all identities, with a threshold that separates pairs of one identity from pairs of two."""
    threshold = _pair_threshold(vectors, rng)
    identities, dimension = vectors.identities, len(vectors.mean_D)
    group_N = vectors.person_N.astype(np.int64)
    main_PD, scatter = np.zeros((identities, dimension), np.float32), Scatter(dimension)
    others: list[Floats] = []
    persons: list[int] = []
    for person, rows in enumerate(vectors.by_identity()):
        z_nD = vectors[rows]
        group_n = group_images(z_nD, threshold)
        scatter.add(z_nD[group_n == 0])
        main_PD[person] = z_nD[group_n == 0].mean(axis=0)
        for number in range(1, int(group_n.max()) + 1):
            group_N[rows[group_n == number]] = identities + len(others)
            others.append(z_nD[group_n == number].mean(axis=0, keepdims=True))
            persons.append(person)
    person_G = np.concatenate([np.arange(identities), np.array(persons, np.int64)])
    size_G, map_DD = np.bincount(group_N, minlength=len(person_G)), scatter.whitening()
    return Grouping(group_N, person_G, size_G, np.concatenate([main_PD, *others]) @ map_DD, map_DD, threshold)


def part_distances(vectors: Vectors, grouping: Grouping, rng: np.random.Generator) -> Floats:
    """Distances between a part of a main group, one image or half of them, and the rest of the group."""
    found: list[float] = []
    sampled = rng.random(vectors.identities) < SAMPLED / vectors.identities
    for person, rows in enumerate(vectors.by_identity()):
        main = rows[grouping.group_N[rows] == person]
        if sampled[person] and len(main) > 1:
            x_nD = vectors[rng.permutation(main)] @ grouping.whitening_DD
            found += [_apart(x_nD, part) for part in {1, len(main) // 2}]
    return np.array(found, np.float32)


def _apart(x_nD: Floats, part: int) -> float:
    sizes = np.array([part]), np.array([len(x_nD) - part])
    return float(distances(x_nD[:part].mean(axis=0), sizes[0], x_nD[part:].mean(axis=0), sizes[1])[0])


def _pair_threshold(vectors: Vectors, rng: np.random.Generator) -> float:
    """Compare pairs of images with one label and pairs with two."""
    several_P = np.flatnonzero(vectors.counts_P > 1)
    starts_P = np.cumsum(vectors.counts_P) - vectors.counts_P
    person_M = rng.choice(several_P, min(PAIRS, 50 * len(several_P)))
    first_M = rng.integers(0, vectors.counts_P[person_M])
    second_M = (first_M + rng.integers(1, vectors.counts_P[person_M])) % vectors.counts_P[person_M]
    left_M, right_M = (vectors.order_N[starts_P[person_M] + place] for place in (first_M, second_M))
    other_M = rng.permutation(right_M)
    apart_M = vectors.person_N[left_M] != vectors.person_N[other_M]
    return best_threshold(vectors.cosines(left_M, right_M), vectors.cosines(left_M[apart_M], other_M[apart_M]))
