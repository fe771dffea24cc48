"""Settings of evaluation: the pairs of held-out people that are verified."""

from pydantic import Field, PositiveInt

from schemas.base import Frozen


class EvaluationConfig(Frozen):
    """Model + held-out faces → scores."""

    pairs: PositiveInt = 3000
    """Pairs of one person, and as many of two; fewer when the held-out faces do not give so many."""
    folds: int = Field(default=10, ge=2)
    flip: bool = True
    """Add the features of the mirror image."""
    seed: int = Field(default=0, ge=0)
    """Which pairs are drawn; independent of the run's seed."""
