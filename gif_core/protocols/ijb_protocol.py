"""The protocols of IJB-B and IJB-C: templates of several media, 1:1 verification and 1:N identification."""

# Shapes: N faces, T templates, D dimensions, P pairs, M faces of a chunk, R templates of a chunk, Q probes, G templates
# of a gallery, K ranks.

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gif_core.protocols.roc import Roc, UndefinedMetricsError, measure_roc, tar_at_far
from gif_core.protocols.sets.ijb import Enrolment

IJB_PROTOCOL: Final = "ijb-1"
"""Increase the number when the same features would get different metrics."""
FALSE_ACCEPT_RATES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
FALSE_POSITIVE_RATES: Final = (0.01, 0.1)
RANKS: Final = (1, 5, 10)
CMC_RANKS: Final = 50
POOLED_AT_ONCE: Final = 8192
"""Faces; a constant, because the order of summation affects the last digit."""
LEFT_AT_ONCE: Final = 256
"""Left templates per matrix product with all their partners."""
GATHERED_AT_ONCE: Final = 8192
SPARSE: Final = 16
"""A matrix product is used if at least one in this many of its scores is needed."""

Doubles = NDArray[np.float64]
LoadFeatures = Callable[[int, int], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Maps a range of faces (start, end) to the features of the images and of their mirror images, [M, D] each."""


@dataclass(frozen=True)
class Flags:
    """How an image is weighted in its template; publications report different variants."""

    flip: bool = True
    """Add the features of the mirror image."""
    detector_score: bool = True
    """Weight by the detector's score."""
    norm: bool = True
    """Weight by the norm of the feature, which grows with the network's confidence."""


@dataclass(frozen=True)
class TemplateVerification:
    """The metrics of 1:1 verification."""

    tar_at_far: dict[float, float]
    roc: Roc


@dataclass(frozen=True)
class Search:
    """The results of all probes in one gallery."""

    own_Q: Doubles
    """Score of the probe's own subject, -inf where it is not enrolled."""
    other_Q: Doubles
    """Best score of any other subject."""
    rank_Q: NDArray[np.int64]
    """Rank of the probe's own subject, from 0."""
    is_mate_Q: NDArray[np.bool_]
    """Whether the probe's subject is enrolled."""


@dataclass(frozen=True)
class Identification:
    """The metrics of 1:N identification over all galleries."""

    tpir_at_fpir: dict[float, float]
    """Mean over the galleries; FNIR is 1 - TPIR. Empty when a gallery holds the subjects of all probes."""
    cmc: Doubles
    """Share of all probes whose subject is among the first 1, 2, … results of a gallery."""
    searches: dict[str, Search]
    """By gallery."""


def pool_templates(
    load: LoadFeatures,
    template_N: NDArray[np.int64],
    media_N: NDArray[np.int64],
    detector_N: Doubles,
    num_templates: int,
    flags: Flags,
) -> Doubles:
    """Return unit templates [T, D]: the mean over the faces of each media, summed over the media of the template."""
    share_N = _media_shares(template_N, media_N) * (detector_N if flags.detector_score else 1.0)
    sums_TD: Doubles | None = None
    for start in range(0, len(template_N), POOLED_AT_ONCE):
        chunk = slice(start, min(start + POOLED_AT_ONCE, len(template_N)))
        features_MD = combine_features(*load(chunk.start, chunk.stop), flags)
        sums_TD = np.zeros((num_templates, features_MD.shape[1])) if sums_TD is None else sums_TD
        rows_R, place_M = np.unique(template_N[chunk], return_inverse=True)
        starts = np.arange(len(place_M) + 1)
        weights_MR = csr_matrix((share_N[chunk], place_M, starts), shape=(len(place_M), len(rows_R)))
        sums_TD[rows_R] += weights_MR.T.tocsr() @ features_MD
    if sums_TD is None:
        raise ValueError("there are no faces to pool into templates")
    return _unit(sums_TD)


def score_pairs(template_TD: Doubles, left_P: NDArray[np.int32], right_P: NDArray[np.int32]) -> Doubles:
    """Return the dot product of each pair of templates.

    Pairs are grouped by their left template: a few hundred left templates times all their partners is one matrix
    product. This is far faster than one product per pair, although most entries are not needed.
    """
    score_P = np.empty(len(left_P))
    lefts, place_T = _ranks(left_P, len(template_TD))
    place_P = place_T[left_P]
    order_P = np.argsort(_narrow(place_P), kind="stable")
    ends = np.searchsorted(place_P, np.arange(0, len(lefts) + LEFT_AT_ONCE, LEFT_AT_ONCE), sorter=order_P)
    for start, end in pairwise(ends.tolist()):
        chosen = order_P[start:end]
        score_P[chosen] = _score_block(template_TD, left_P[chosen], right_P[chosen])
    return score_P


def verify_templates(score_P: Doubles, same_P: NDArray[np.bool_]) -> TemplateVerification:
    """Return the 1:1 metrics: TAR at the achievable FAR closest to each rate."""
    roc = measure_roc(score_P, same_P)
    return TemplateVerification({far: tar_at_far(roc, far) for far in FALSE_ACCEPT_RATES}, roc)


def identify_templates(template_TD: Doubles, galleries: Mapping[str, Enrolment], probes: Enrolment) -> Identification:
    """Return the 1:N metrics; in each gallery, the probes whose subject it does not hold are impostors.

    The threshold accepts a share FPIR of the impostors; a hit is strictly above it and above all other subjects.
    Ties are resolved against the probe.
    """
    found: list[dict[float, float]] = []
    searches: dict[str, Search] = {}
    ranks_K = np.zeros(CMC_RANKS, np.int64)
    for name, gallery in galleries.items():
        search = searches[name] = _search(template_TD, gallery, probes)
        is_mate_Q = search.is_mate_Q
        if not is_mate_Q.any():
            raise UndefinedMetricsError(f"no probe has its subject in gallery {name}: TPIR and ranks are undefined")
        ranks_K += np.bincount(search.rank_Q[is_mate_Q], minlength=CMC_RANKS + 1)[:CMC_RANKS]
        if not is_mate_Q.all():
            hits = (search.own_Q > search.other_Q)[is_mate_Q]
            found.append(_tpir(search.own_Q[is_mate_Q], hits, np.sort(search.other_Q[~is_mate_Q])[::-1]))
    rates = FALSE_POSITIVE_RATES if len(found) == len(galleries) else ()
    tpir = {fpir: float(np.mean([each[fpir] for each in found])) for fpir in rates}
    return Identification(tpir, ranks_K.cumsum() / len(probes.subject_G), searches)


def _media_shares(template_N: NDArray[np.int64], media_N: NDArray[np.int64]) -> Doubles:
    """Return 1 / the number of faces in the same media of the same template."""
    _, media_N = np.unique(media_N, return_inverse=True)
    both_N = template_N * (int(media_N.max(initial=0)) + 1) + media_N
    _, place_N, count = np.unique(both_N, return_inverse=True, return_counts=True)
    shares: Doubles = 1.0 / count[place_N]
    return shares


def combine_features(original_MD: NDArray[np.float32], mirror_MD: NDArray[np.float32], flags: Flags) -> Doubles:
    """Return the features of images, with `flip` plus those of their mirror images, without `norm` of unit length."""
    features_MD = original_MD.astype(np.float64)
    if flags.flip:
        features_MD += mirror_MD
    return features_MD if flags.norm else _unit(features_MD)


def _unit(rows: Doubles) -> Doubles:
    """Normalise the rows; a row of zeros stays zero."""
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows / np.where(length == 0, 1.0, length)[:, None]


def _narrow(place_P: NDArray[np.int32]) -> NDArray[np.uint16] | NDArray[np.int32]:
    """Return 16-bit numbers if they fit: numpy sorts these with a radix sort, in linear time."""
    return place_P.astype(np.uint16) if place_P.max(initial=0) < 2**16 else place_P


def _score_block(template_TD: Doubles, left: NDArray[np.int32], right: NDArray[np.int32]) -> Doubles:
    """Score pairs with few distinct left templates."""
    rows, row_of = _ranks(left, len(template_TD))
    columns, column_of = _ranks(right, len(template_TD))
    if SPARSE * len(left) >= len(rows) * len(columns):
        scores: Doubles = (template_TD[rows] @ template_TD[columns].T)[row_of[left], column_of[right]]
        return scores
    scores = np.empty(len(left))
    for start in range(0, len(left), GATHERED_AT_ONCE):
        part = slice(start, start + GATHERED_AT_ONCE)
        scores[part] = np.einsum("pd,pd->p", template_TD[left[part]], template_TD[right[part]])
    return scores


def _ranks(values: NDArray[np.int32], size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the distinct values in ascending order, and a table from each value to its position among them."""
    present = np.zeros(size, np.bool_)
    present[values] = True
    return np.flatnonzero(present), np.cumsum(present, dtype=np.int32) - np.int32(1)


def _search(template_TD: Doubles, gallery: Enrolment, probes: Enrolment) -> Search:
    """Search all probes in one gallery."""
    order = np.argsort(gallery.subject_G)
    place_Q = np.searchsorted(gallery.subject_G[order], probes.subject_G)
    mate_Q = order[np.minimum(place_Q, len(order) - 1)]
    is_mate_Q = gallery.subject_G[mate_Q] == probes.subject_G
    own_Q, other_Q = np.full(len(mate_Q), -np.inf), np.empty(len(mate_Q))
    rank_Q = np.zeros(len(mate_Q), np.int64)
    gallery_DG = np.ascontiguousarray(template_TD[gallery.template_G].T)
    for start in range(0, len(mate_Q), GATHERED_AT_ONCE // 4):
        part = np.arange(start, min(start + GATHERED_AT_ONCE // 4, len(mate_Q)))
        score_QG = template_TD[probes.template_G[part]] @ gallery_DG
        mates = np.flatnonzero(is_mate_Q[part])
        own_Q[part[mates]] = score_QG[mates, mate_Q[part[mates]]]
        score_QG[mates, mate_Q[part[mates]]] = -np.inf
        other_Q[part] = score_QG.max(axis=1)
        rank_Q[part] = np.minimum((score_QG >= own_Q[part][:, None]).sum(axis=1), CMC_RANKS)
    return Search(own_Q, other_Q, rank_Q, is_mate_Q)


def _tpir(own: Doubles, hits: NDArray[np.bool_], impostors: Doubles) -> dict[float, float]:
    """Return the share of mates that are hits above the threshold of each FPIR; `impostors` are sorted, descending."""
    thresholds = {fpir: impostors[max(int(len(impostors) * fpir) - 1, 0)] for fpir in FALSE_POSITIVE_RATES}
    return {fpir: float(np.mean(hits & (own > threshold))) for fpir, threshold in thresholds.items()}
