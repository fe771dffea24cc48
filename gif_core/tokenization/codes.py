"""Identity codes: their shape (length l, vocab size v), checks, and packing into integers."""

# Shapes: N identities, L code length, P prefixes of a level.

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.tokenization import TokenizationConfig

Codes = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CodeShape:
    """A code has `length` tokens (l), each in [0, vocab_size - 1] (v)."""

    length: int
    vocab_size: int

    def capacity(self, level: int) -> int:
        """Return how many identities may share their first `level` tokens: v^(l - level)."""
        return int(self.vocab_size ** (self.length - level))


@dataclass(frozen=True)
class Prefixes:
    """The distinct prefixes of one level, in lexicographic order."""

    level: int
    node_N: npt.NDArray[np.int64]
    """The prefix of each identity."""
    first_P: npt.NDArray[np.int64]
    """One identity with the prefix."""
    size_P: npt.NDArray[np.int64]


def code_shape(num_identities: int, config: TokenizationConfig) -> CodeShape:
    """Return the smallest v with v^l >= m, for the given l or for the smallest l with v <= `max_vocab_size`.

    A scalar code has l=1 and v=m. With `max_vocab_size` 20 and more than 20 identities, v is also at least 5, as in the
    paper: the next shorter code would need v > 20, and 20^(1/2) rounds up to 5.
    """
    if num_identities < 1:
        raise ValueError(f"{num_identities} identities cannot have codes")
    length = config.length or 1
    chosen_here = config.length is None and config.mode != "scalar"
    while chosen_here and config.max_vocab_size**length < num_identities:
        length += 1
    shape = CodeShape(length, _ceil_root(num_identities, length))
    if shape.capacity(0) >= 2**63:
        raise ValueError(f"codes of length={length} and vocab_size={shape.vocab_size} do not fit 63 bits: shorten them")
    return shape


def draw_codes(num_identities: int, shape: CodeShape, *, seed: int) -> Codes:
    """Draw atomic codes: distinct random codes out of all v^l. With l=1, the code is the index of the identity."""
    if not 1 <= num_identities <= shape.capacity(0):
        raise ValueError(
            f"{num_identities} identities do not fit codes of length={shape.length} vocab_size={shape.vocab_size}"
        )
    if shape.length == 1:
        return np.arange(num_identities, dtype=np.int32).reshape(-1, 1)
    number_N = np.random.default_rng(seed).choice(shape.capacity(0), num_identities, replace=False)
    capacity_L = np.array([shape.capacity(level + 1) for level in range(shape.length)])
    codes_NL: Codes = (number_N[:, None] // capacity_L % shape.vocab_size).astype(np.int32)
    return codes_NL


def check_codes(codes_NL: npt.NDArray[np.integer], shape: CodeShape) -> None:
    """Raise `ValueError` naming the first token outside the vocabulary, prefix above its capacity, or shared code."""
    if codes_NL.ndim != 2 or codes_NL.shape[1] != shape.length or not np.issubdtype(codes_NL.dtype, np.integer):
        raise ValueError(f"expected integer codes of {shape.length} tokens, got {codes_NL.dtype}{codes_NL.shape}")
    outside = np.argwhere((codes_NL < 0) | (codes_NL >= shape.vocab_size))
    if len(outside):
        row, place = outside[0]
        raise ValueError(
            f"token {place + 1} of identity {row} is {codes_NL[row, place]}, outside [0, {shape.vocab_size - 1}]"
        )
    for prefixes in walk_prefixes(codes_NL, shape):
        capacity = shape.capacity(prefixes.level)
        over = np.flatnonzero(prefixes.size_P > capacity)
        if len(over):
            prefix = codes_NL[prefixes.first_P[over[0]], : prefixes.level].tolist()
            examples = np.flatnonzero(prefixes.node_N == over[0])[:2].tolist()
            kind = "code" if prefixes.level == shape.length else "prefix"
            size = prefixes.size_P[over[0]]
            raise ValueError(
                f"{kind} {prefix} is shared by {size} identities (such as {examples}), above its capacity {capacity}"
            )


def walk_prefixes(codes_NL: npt.NDArray[np.integer], shape: CodeShape) -> Iterator[Prefixes]:
    """Yield the nodes of the code tree, level 0 (the root) to l (the codes themselves)."""
    node_N = np.zeros(len(codes_NL), dtype=np.int64)
    for level in range(shape.length + 1):
        key_N = node_N * shape.vocab_size + codes_NL[:, level - 1] if level else node_N
        _, first_P, node_N, size_P = np.unique(key_N, return_index=True, return_inverse=True, return_counts=True)
        yield Prefixes(level, node_N, first_P, size_P)


def _ceil_root(number: int, degree: int) -> int:
    """Return the smallest integer v with v^degree >= number: a floating-point root, corrected in integers."""
    root: int = max(1, round(number ** (1 / degree)))
    while root**degree < number:
        root += 1
    while root > 1 and (root - 1) ** degree >= number:
        root -= 1
    return root


def pack_codes(codes_NL: npt.NDArray[np.integer], shape: CodeShape) -> Integers:
    """Return the number of each code in lexicographic order, c1·v^(l-1) + … + cl; prefixes can be packed too."""
    packed_N = np.zeros(len(codes_NL), dtype=np.int64)
    for token_N in codes_NL.T:
        packed_N *= shape.vocab_size
        packed_N += token_N
    return packed_N


def unpack_codes(packed_N: Integers, shape: CodeShape) -> Codes:
    """Return the codes with these numbers."""
    codes_NL = np.empty((len(packed_N), shape.length), dtype=np.int32)
    for place in reversed(range(shape.length)):
        packed_N, codes_NL[:, place] = np.divmod(packed_N, shape.vocab_size)
    return codes_NL
