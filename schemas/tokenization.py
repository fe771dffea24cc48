"""Settings of tokenization: the shape of the identity codes and how they are computed (Algorithm 1)."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen


class TokenizationConfig(Frozen):
    """Code vectors → identity codes of l tokens with values in [0, v-1]."""

    mode: Literal["structured", "atomic", "scalar"] = "structured"
    """`structured`: a code is a path through a tree of clusters. `atomic`: random distinct codes out of all v^l.
    `scalar`: one token with one value per identity, as in a classifier."""
    alignment: Literal["aligned", "none"] = "aligned"
    """`aligned`: order the children of every node so that a token's value means a similar direction everywhere.
    `none`: the paper's arbitrary order. Applies to structured codes only."""
    length: PositiveInt | None = None
    """Code length l; null: the smallest length whose vocab size v is at most `max_vocab_size`."""
    max_vocab_size: int = Field(default=20, ge=2)
    """Largest vocab size v when `length` is null. With the default and more than 20 identities v is also above 4, as
    the paper recommends."""
    iterations: PositiveInt = 20
    """Iterations of k-means at each node of the tree."""
    points_per_centroid: int = Field(default=2048, ge=2)
    """Centroids of a node are computed from a random sample of at most v times this many identities; larger nodes are
    subsampled."""
    extends: str | None = Field(default=None, pattern=KEY_PATTERN)
    """Key of a code table to extend: its identities, which come first, keep their codes, and the others get unused
    codes of its tree near their neighbours; null: compute all codes from scratch."""

    @model_validator(mode="after")
    def _scalar_codes_are_one_token(self) -> Self:
        if self.mode == "scalar" and self.length not in (None, 1):
            raise ValueError(f"a scalar code has one token: remove length={self.length}, or choose another mode")
        return self
