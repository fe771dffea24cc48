"""Which images form pairs, and pairs drawn from labelled images. Imports only numpy."""

# Shapes: N images, P pairs.

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.protocols.roc import UndefinedMetricsError

SAME: Final = 601
DIFFERENT: Final = 602
"""Second element of the seeds used here."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of images, by their index."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    same: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of pairs of both kinds."""
        return len(self.same)

    def needed_images(
        self, part: slice = slice(None)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the distinct images of these pairs, and the positions of the left and right images among them."""
        images, places = np.unique(np.concatenate([self.left[part], self.right[part]]), return_inverse=True)
        left, right = np.split(places, 2)
        return images, left, right


def draw_pairs(labels_N: NDArray[np.int64], *, pairs: int, seed: int, folds: int) -> Pairs:
    """Draw `pairs` distinct same pairs and as many different pairs, alternating; fewer if there are not enough.

    The number is rounded down to a multiple of `folds`, so that every fold holds equally many of each kind. Raises
    `UndefinedMetricsError` when that leaves none.
    """
    order_N = np.argsort(labels_N, kind="stable")
    _, starts = np.unique(labels_N[order_N], return_index=True)
    bounds = np.append(starts, len(labels_N))
    if len(starts) < 2:
        raise UndefinedMetricsError(f"different pairs need at least two identities, got {len(starts)}")
    if np.diff(bounds).max() < 2:
        raise UndefinedMetricsError(
            "same pairs need an identity with at least two images, but every identity has a single image"
        )
    same_P2 = _draw_same(bounds, pairs, seed)
    different_P2 = _draw_different(bounds, pairs, seed)
    count = min(len(same_P2), len(different_P2)) // folds * folds
    if count == 0:
        found = f"{len(same_P2)} same and {len(different_P2)} different pairs"
        raise UndefinedMetricsError(f"{found} are too few for {folds} folds")
    both_P2 = order_N[np.stack([same_P2[:count], different_P2[:count]], axis=1).reshape(-1, 2)]
    return Pairs(both_P2[:, 0], both_P2[:, 1], np.tile([True, False], count))


def _draw_same(bounds: NDArray[np.int64], pairs: int, seed: int) -> NDArray[np.int64]:
    """Draw same pairs, as positions; identities take turns, so that those with many images do not dominate."""
    rng = np.random.default_rng([seed, SAME])
    drawn, turns = [], []
    for start, end in pairwise(bounds):
        within_P2 = np.stack(np.triu_indices(end - start, k=1), axis=1)
        drawn.append(start + rng.permutation(within_P2)[:pairs])
        turns.append(np.arange(len(drawn[-1])))
    all_P2, turn_P = np.concatenate(drawn), np.concatenate(turns)
    by_turn = np.lexsort((rng.random(len(turn_P)), turn_P))
    return rng.permutation(all_P2[by_turn[:pairs]])


def _draw_different(bounds: NDArray[np.int64], pairs: int, seed: int) -> NDArray[np.int64]:
    """Draw different pairs, as positions, uniformly: by their rank among all such pairs."""
    ends_N = np.repeat(bounds[1:], np.diff(bounds))
    partners_N = bounds[-1] - ends_N
    last_rank_N = partners_N.cumsum()
    total = int(last_rank_N[-1])
    rank_P = np.random.default_rng([seed, DIFFERENT]).choice(total, min(pairs, total), replace=False)
    left_P = np.searchsorted(last_rank_N, rank_P, side="right")
    right_P = ends_N[left_P] + rank_P - (last_rank_N - partners_N)[left_P]
    return np.stack([left_P, right_P], axis=1)


def pair_rows(pairs: Pairs) -> NDArray[np.int64]:
    """Return the image rows in the order of a `.bin` file: pair i occupies positions 2i and 2i + 1."""
    return np.stack([pairs.left, pairs.right], axis=1).ravel()
