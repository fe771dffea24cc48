"""Settings of tokenization: the shape of the identity codes."""

from typing import Self

from pydantic import Field, PositiveInt, model_validator

from schemas.base import Frozen


class TokenizationConfig(Frozen):
    """Code vectors → identity codes of l tokens in [0, v-1]."""

    length: PositiveInt | None = None
    """l; null: the smallest length whose range v lies in [smallest_range, largest_range]."""
    smallest_range: int = Field(default=5, ge=2)
    largest_range: int = Field(default=20, ge=2)
    iterations: PositiveInt = 20
    """Rounds of k-means at each node of the tree."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.largest_range < self.smallest_range:
            raise ValueError(
                f"largest_range={self.largest_range} must be at least smallest_range={self.smallest_range}"
            )
        return self
