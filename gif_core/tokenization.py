"""Tokenization: code vectors to identity codes by capacity-bounded hierarchical k-means (Algorithm 1).

Shapes: N identities, D dimensions, L code length.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gif_core.kmeans import assign_bounded, spherical_kmeans
from schemas.tokenization import TokenizationConfig

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CodeShape:
    """A code has `length` tokens (l), each in [0, range - 1] (v)."""

    length: int
    range: int

    def capacity(self, level: int) -> int:
        """How many identities may share their first `level` tokens: v^(l - level)."""
        return int(self.range ** (self.length - level))


@dataclass(frozen=True)
class TokenizationStep:
    """Progress of tokenization; the last step has everybody done and carries the codes."""

    done: int
    total: int
    codes_NL: Codes | None = None


@dataclass(frozen=True)
class Prefixes:
    """The distinct prefixes of one level, in lexicographic order."""

    level: int
    node_N: npt.NDArray[np.int64]
    """The prefix each identity has."""
    first_P: npt.NDArray[np.int64]
    """One identity that has the prefix."""
    size_P: npt.NDArray[np.int64]


def code_shape(num_identities: int, config: TokenizationConfig) -> CodeShape:
    """The smallest v with v^l >= m, for the given l or the smallest l that brings v down to `largest_range`.

    v falls as l grows. With v <= 20 it is also at least 5, as the paper wants, whenever there are more than 20
    identities: the next shorter code would need v > 20, and 20^(1/2) rounds up to 5.
    """
    if num_identities < 1:
        raise ValueError(f"{num_identities} identities cannot have codes")
    length = config.length or 1
    while config.length is None and config.largest_range**length < num_identities:
        length += 1
    shape = CodeShape(length, _ceil_root(num_identities, length))
    if shape.capacity(0) >= 2**63:
        raise ValueError(f"codes of length={length} and range={shape.range} do not fit 63 bits: shorten them")
    return shape


def tokenize(
    vectors_ND: npt.NDArray[np.floating], shape: CodeShape, *, iterations: int, seed: int
) -> Iterator[TokenizationStep]:
    """Split the identities into v clusters, and each of those again, until every identity is alone.

    A cluster at token j holds at most v^(l-j) identities, so no two end up with one code. A node of at most v
    identities is not clustered: each is its own child, in identity order, and keeps that index to the end.
    """
    if vectors_ND.ndim != 2 or not np.isfinite(vectors_ND).all():
        raise ValueError(f"expected rows of finite vectors, got shape {vectors_ND.shape} or values not finite")
    total = len(vectors_ND)
    if not 1 <= total <= shape.capacity(0):
        raise ValueError(f"{total} identities do not fit codes of length={shape.length} range={shape.range}")
    codes_NL = np.zeros((total, shape.length), dtype=np.int32)
    done, nodes = 0, [(0, np.arange(total))]
    while nodes:
        level, rows = nodes.pop()
        if len(rows) <= shape.range:
            codes_NL[rows, level:] = np.arange(len(rows))[:, None]
            done += len(rows)
            continue
        yield TokenizationStep(done, total)
        tokens = _split(vectors_ND[rows], shape, level, iterations, [seed, level, int(rows[0])])
        codes_NL[rows, level] = tokens
        nodes += [(level + 1, rows[tokens == token]) for token in np.unique(tokens)[::-1]]
    yield TokenizationStep(done, total, codes_NL)


def check_codes(codes_NL: npt.NDArray[np.integer], shape: CodeShape) -> None:
    """Raise `ValueError` naming the first token out of range, prefix above its capacity, or shared code."""
    if codes_NL.ndim != 2 or codes_NL.shape[1] != shape.length or not np.issubdtype(codes_NL.dtype, np.integer):
        raise ValueError(f"expected integer codes of {shape.length} tokens, got {codes_NL.dtype}{codes_NL.shape}")
    outside = np.argwhere((codes_NL < 0) | (codes_NL >= shape.range))
    if len(outside):
        row, place = outside[0]
        raise ValueError(
            f"token {place + 1} of identity {row} is {codes_NL[row, place]}, outside [0, {shape.range - 1}]"
        )
    for prefixes in walk_prefixes(codes_NL, shape):
        capacity = shape.capacity(prefixes.level)
        over = np.flatnonzero(prefixes.size_P > capacity)
        if len(over):
            prefix = codes_NL[prefixes.first_P[over[0]], : prefixes.level].tolist()
            who = np.flatnonzero(prefixes.node_N == over[0])[:2].tolist()
            kind = "code" if prefixes.level == shape.length else "prefix"
            size = prefixes.size_P[over[0]]
            raise ValueError(f"{kind} {prefix} is shared by {size} identities, {who} among them, above {capacity}")


def walk_prefixes(codes_NL: npt.NDArray[np.integer], shape: CodeShape) -> Iterator[Prefixes]:
    """The nodes of the code tree, level 0 (the root) to l (the codes themselves)."""
    node_N = np.zeros(len(codes_NL), dtype=np.int64)
    for level in range(shape.length + 1):
        key_N = node_N * shape.range + codes_NL[:, level - 1] if level else node_N
        _, first_P, node_N, size_P = np.unique(key_N, return_index=True, return_inverse=True, return_counts=True)
        yield Prefixes(level, node_N, first_P, size_P)


def _split(
    vectors_ND: npt.NDArray[np.floating], shape: CodeShape, level: int, iterations: int, seeds: list[int]
) -> npt.NDArray[np.int64]:
    """The child of each identity of one node."""
    seed = int(np.random.default_rng(seeds).integers(2**31))
    centroids_KD = spherical_kmeans(vectors_ND, shape.range, iterations=iterations, seed=seed)
    return assign_bounded(vectors_ND @ centroids_KD.T, capacity=shape.capacity(level + 1))


def _ceil_root(number: int, degree: int) -> int:
    """The smallest integer v with v^degree >= number: a floating-point root, put right in integers."""
    root: int = max(1, round(number ** (1 / degree)))
    while root**degree < number:
        root += 1
    while root > 1 and (root - 1) ** degree >= number:
        root -= 1
    return root
