"""Settings of tokenization: the shape of the identity codes and how they are made."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen


class TokenizationConfig(Frozen):
    """Code vectors → identity codes of l tokens in [0, v-1]."""

    mode: Literal["structured", "atomic", "scalar"] = "structured"
    """`structured`: the path through a tree of clusters; `atomic`: a random choice of all v^l codes; `scalar`: one
    token with a value for each identity, as classifiers have it."""
    alignment: Literal["aligned", "none"] = "aligned"
    """`aligned`: a token's value means a similar direction below every parent; `none`: the paper's arbitrary order.
    Of structured codes alone."""
    length: PositiveInt | None = None
    """l; null: the smallest length whose range v is at most `max_vocab_size`."""
    max_vocab_size: int = Field(default=20, ge=2)
    """v is then above 4 too, as the paper wants it, for any number of identities above 20."""
    iterations: PositiveInt = 20
    """Rounds of k-means at each node of the tree."""
    points_per_centroid: int = Field(default=2048, ge=2)
    """A node's centroids come of at most v times as many of its identities, chosen by the seed."""
    extends: str | None = Field(default=None, pattern=KEY_PATTERN)
    """Key of a code table that is kept: its identities come first, the others get free codes of its tree near their
    neighbours; null: all identities gets a new code."""

    @model_validator(mode="after")
    def _scalar_codes_are_one_token(self) -> Self:
        if self.mode == "scalar" and self.length not in (None, 1):
            raise ValueError(f"a scalar code has one token: leave out length={self.length}, or choose another mode")
        return self
