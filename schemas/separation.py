"""Settings of separation: how code vectors are spread over the sphere (Eq. 4 to 6)."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from schemas.base import Frozen


class SeparationConfig(Frozen):
    """Identity vectors → code vectors."""

    recipe: Literal["per_vector", "literal"] = "per_vector"
    """`per_vector`: the step of a code vector does not depend on the batch size and reaches uniformity;
    `literal`: Eq. 6 as printed, whose steps shrink with the batch."""
    temperature: PositiveFloat = 2.0
    """t of the Gaussian potential."""
    learning_rate: PositiveFloat = 0.1
    epochs: PositiveInt = 1000
    """At the most; `target_gap` may end it earlier."""
    batch_size: PositiveInt = 2048
    target_gap: float | None = Field(default=0.01, gt=0)
    """Stop when the loss is this close to its uniform limit; null: run all epochs."""
