"""Settings of tokenization: the shape of the identity codes."""

from pydantic import Field, PositiveInt

from schemas.base import Frozen


class TokenizationConfig(Frozen):
    """Code vectors → identity codes of l tokens in [0, v-1]."""

    length: PositiveInt | None = None
    """l; null: the smallest length whose range v is at most `largest_range`."""
    largest_range: int = Field(default=20, ge=2)
    """v is then above 4 too, as the paper wants it, for any number of identities above 20."""
    iterations: PositiveInt = 20
    """Rounds of k-means at each node of the tree."""
