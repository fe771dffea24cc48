"""Search of single images in a gallery with distractors: the protocol of TinyFace."""

# Shapes: G images of the gallery, Q probes, D dimensions, B probes of a block, K ranks.

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.protocols.ijb_protocol import CMC_RANKS, Doubles, Search

SEARCH_PROTOCOL: Final = "tinyface-1"
"""Increase the number when the same features would get different metrics."""
SEARCH_RANKS: Final = (1, 5, 20)
PROBES_AT_ONCE: Final = 128
"""Probes per matrix product with the gallery: 80 MB of scores with TinyFace's 157,871 images."""
Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def search_images(gallery_GD: Floats, label_G: Labels, probe_QD: Floats, label_Q: Labels) -> Search:
    """Search every probe among all images of the gallery, by dot products of unit features.

    The rank of a probe is the number of images of other identities that score at least as high as the best image of
    its own: ties are resolved against the probe, and several images of one identity are no obstacle to each other.
    """
    own_Q, other_Q = np.empty(len(label_Q)), np.empty(len(label_Q))
    rank_Q = np.empty(len(label_Q), np.int64)
    for start in range(0, len(label_Q), PROBES_AT_ONCE):
        block = slice(start, start + PROBES_AT_ONCE)
        score_BG = probe_QD[block] @ gallery_GD.T
        own_BG = label_Q[block, None] == label_G
        own_Q[block] = np.where(own_BG, score_BG, -np.inf).max(axis=1)
        other_BG = np.where(own_BG, -np.inf, score_BG)
        other_Q[block] = other_BG.max(axis=1)
        rank_Q[block] = np.minimum((other_BG >= own_Q[block, None]).sum(axis=1), CMC_RANKS)
    return Search(own_Q, other_Q, rank_Q, np.isfinite(own_Q))


def search_cmc(search: Search) -> Doubles:
    """Return the share of probes whose identity is among the first 1, 2, … images [K]."""
    found_K = np.bincount(search.rank_Q[search.is_mate_Q], minlength=CMC_RANKS + 1)[:CMC_RANKS]
    cmc_K: Doubles = found_K.cumsum() / len(search.rank_Q)
    return cmc_K
