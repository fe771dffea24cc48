"""The protocols of IJB-B and IJB-C: templates of several media, 1:1 verification and 1:N identification."""

# Shapes: N faces, T templates, D dimensions, P pairs, M faces in a chunk, R templates in a chunk, Q probes, G gallery.

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
"""Raise its number when the same features would get other metrics."""
FALSE_ACCEPT_RATES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
FALSE_POSITIVE_RATES: Final = (0.01, 0.1)
RANKS: Final = (1, 5, 10)
CMC_RANKS: Final = 50
POOLED_AT_ONCE: Final = 8192
"""Faces; a constant, as the order of summation is part of the last digit."""
LEFT_AT_ONCE: Final = 256
"""Templates whose scores with all their partners are one matrix product."""
GATHERED_AT_ONCE: Final = 8192
SPARSE: Final = 16
"""A product is worth it while at least one of so many of its scores is asked for."""

Doubles = NDArray[np.float64]
LoadFeatures = Callable[[int, int], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""From first face and end to the features of the images and of their mirrors, of any length [M, D]."""


@dataclass(frozen=True)
class Flags:
    """How an image counts in its template; peers report different variants."""

    flip: bool = True
    """Add the features of the mirror image."""
    detector_score: bool = True
    """Weigh by the detector's score."""
    norm: bool = True
    """Weigh by the length of the feature, which tells how sure the network is."""


@dataclass(frozen=True)
class TemplateVerification:
    """The metrics of 1:1."""

    tar_at_far: dict[float, float]
    roc: Roc


@dataclass(frozen=True)
class Search:
    """What every probe finds in one gallery."""

    own_Q: Doubles
    """Score of its own subject, -inf where that is not enrolled."""
    other_Q: Doubles
    """Best score of the others."""
    rank_Q: NDArray[np.int64]
    """Of its own subject, from 0."""
    is_mate_Q: NDArray[np.bool_]
    """Whether its subject is enrolled at all."""


@dataclass(frozen=True)
class Identification:
    """The metrics of 1:N, over all galleries."""

    tpir_at_fpir: dict[float, float]
    """Mean over the galleries; FNIR is the rest to 1. Empty when a gallery has the subjects of all probes."""
    cmc: Doubles
    """Share of all probes whose subject is among the first 1, 2, … of a gallery."""
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
    """Unit templates [T, D]: the mean over the faces of a media, summed over the media of the template."""
    share_N = _media_shares(template_N, media_N) * (detector_N if flags.detector_score else 1.0)
    sums_TD: Doubles | None = None
    for start in range(0, len(template_N), POOLED_AT_ONCE):
        chunk = slice(start, min(start + POOLED_AT_ONCE, len(template_N)))
        features_MD = _combine(*load(chunk.start, chunk.stop), flags)
        sums_TD = np.zeros((num_templates, features_MD.shape[1])) if sums_TD is None else sums_TD
        rows_R, place_M = np.unique(template_N[chunk], return_inverse=True)
        starts = np.arange(len(place_M) + 1)
        weights_MR = csr_matrix((share_N[chunk], place_M, starts), shape=(len(place_M), len(rows_R)))
        sums_TD[rows_R] += weights_MR.T.tocsr() @ features_MD
    if sums_TD is None:
        raise ValueError("there are no faces to make templates of")
    return _unit(sums_TD)


def score_pairs(template_TD: Doubles, left_P: NDArray[np.int32], right_P: NDArray[np.int32]) -> Doubles:
    """The dot product of each pair of templates.

    Pairs are taken together by their left template: a few hundred of these times all their partners is one matrix
    product, which is far faster than a product for each pair although most of its entries are not asked for.
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
    """1:1 metrics: TAR where FAR is nearest to each rate."""
    roc = measure_roc(score_P, same_P)
    return TemplateVerification({far: tar_at_far(roc, far) for far in FALSE_ACCEPT_RATES}, roc)


def identify_templates(template_TD: Doubles, galleries: Mapping[str, Enrolment], probes: Enrolment) -> Identification:
    """1:N metrics. In each gallery, probes that it does not hold are impostors.

    A threshold lets the share FPIR of the impostors through; a hit is strictly above it and above all others.
    Subjects with equal scores rank behind each other, the worst for the probe.
    """
    found: list[dict[float, float]] = []
    searches: dict[str, Search] = {}
    ranks_K = np.zeros(CMC_RANKS, np.int64)
    for name, gallery in galleries.items():
        search = searches[name] = _search(template_TD, gallery, probes)
        is_mate_Q = search.is_mate_Q
        if not is_mate_Q.any():
            raise UndefinedMetricsError(f"no probe has its subject in gallery {name}: nobody can be identified")
        ranks_K += np.bincount(search.rank_Q[is_mate_Q], minlength=CMC_RANKS + 1)[:CMC_RANKS]
        if not is_mate_Q.all():
            hits = (search.own_Q > search.other_Q)[is_mate_Q]
            found.append(_tpir(search.own_Q[is_mate_Q], hits, np.sort(search.other_Q[~is_mate_Q])[::-1]))
    rates = FALSE_POSITIVE_RATES if len(found) == len(galleries) else ()
    tpir = {fpir: float(np.mean([each[fpir] for each in found])) for fpir in rates}
    return Identification(tpir, ranks_K.cumsum() / len(probes.subject_G), searches)


def _media_shares(template_N: NDArray[np.int64], media_N: NDArray[np.int64]) -> Doubles:
    """One over the number of faces in the same media of the same template."""
    _, media_N = np.unique(media_N, return_inverse=True)
    both_N = template_N * (int(media_N.max(initial=0)) + 1) + media_N
    _, place_N, count = np.unique(both_N, return_inverse=True, return_counts=True)
    shares: Doubles = 1.0 / count[place_N]
    return shares


def _combine(original_MD: NDArray[np.float32], mirror_MD: NDArray[np.float32], flags: Flags) -> Doubles:
    features_MD = original_MD.astype(np.float64)
    if flags.flip:
        features_MD += mirror_MD
    return features_MD if flags.norm else _unit(features_MD)


def _unit(rows: Doubles) -> Doubles:
    """Rows of unit length; a row of zeros stays as it is."""
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows / np.where(length == 0, 1.0, length)[:, None]


def _narrow(place_P: NDArray[np.int32]) -> NDArray[np.uint16] | NDArray[np.int32]:
    """Numbers of 16 bits where they fit: numpy sorts these by their digits, in linear time."""
    return place_P.astype(np.uint16) if place_P.max(initial=0) < 2**16 else place_P


def _score_block(template_TD: Doubles, left: NDArray[np.int32], right: NDArray[np.int32]) -> Doubles:
    """Scores of pairs with few different left templates."""
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
    """The distinct values in order, and a table from each to its place among them."""
    present = np.zeros(size, np.bool_)
    present[values] = True
    return np.flatnonzero(present), np.cumsum(present, dtype=np.int32) - np.int32(1)


def _search(template_TD: Doubles, gallery: Enrolment, probes: Enrolment) -> Search:
    """All probes in one gallery."""
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
    """The share of mates that are hits above the threshold of each FPIR; impostors' best scores, descending."""
    thresholds = {fpir: impostors[max(int(len(impostors) * fpir) - 1, 0)] for fpir in FALSE_POSITIVE_RATES}
    return {fpir: float(np.mean(hits & (own > threshold))) for fpir, threshold in thresholds.items()}
