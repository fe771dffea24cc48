"""Retraining: the policy for challengers, and the stored decisions about champions."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen, Seed, Stored

CHAMPION: Final = "champion"
Key = Annotated[str, Field(pattern=KEY_PATTERN)]
MetricName = Annotated[
    str, Field(pattern=r"^(accuracy|rank_\d+|(tar_at_far|tpir_at_fpir)_0\.\d+|(tar_at_far|tpir_at_fpir)_1e-\d+)$")
]
TagName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$")]


class CodesPolicy(Frozen):
    """When the champion's codes are extended, and when codes are rebuilt from scratch."""

    prefer: Literal["extend", "rebuild"] = "extend"
    """`extend`: identities keep their codes and new ones get unused codes, as long as `fullest` and
    `least_separation` allow it. `rebuild`: compute all codes from scratch every time."""
    fullest: float = Field(default=0.95, gt=0, le=1)
    """Rebuild the codes when more than this share of the code tree would be occupied."""
    least_separation: float = Field(default=0.5, ge=0, le=1)
    """Rebuild the codes when the smallest distance between two code vectors would fall below this share of its value
    after the last rebuild."""


class TrainingPolicy(Frozen):
    """How a challenger is trained."""

    fine_tune: Literal["extended", "always", "never"] = "extended"
    """When training starts from the champion's weights: if its codes were extended, `always`, or `never` (train from
    scratch). The token heads carry over only when the codes were extended."""
    epochs_share: float = Field(default=0.25, gt=0, le=1)
    """Share of the configured epochs and warm-up steps used for fine-tuning; at least one epoch."""
    learning_rate_share: PositiveFloat = 0.1
    """Factor on the configured learning rate for fine-tuning, and on that of code vectors."""


class PromotionPolicy(Frozen):
    """When a challenger is promoted: at least one metric significantly better, and none significantly worse."""

    metrics: tuple[MetricName, ...] = Field(
        default=("accuracy", "tar_at_far_0.001", "tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1"), min_length=1
    )
    """Metrics that are compared, on every set that has them and is large enough to measure them."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Confidence level of the bootstrap interval of each difference."""
    replicas: int = Field(default=1000, ge=100)
    """Bootstrap resamples of the identities."""
    seed: Seed = 0
    """Seed of the resampling."""


class RetrainingPolicy(Frozen):
    """What `gif retrain` does when the sources have new data."""

    tag: TagName = CHAMPION
    """Tag of the model in use; a store can hold several lines of champions, each under its own tag."""
    codes: CodesPolicy = CodesPolicy()
    """When codes are extended or rebuilt."""
    training: TrainingPolicy = TrainingPolicy()
    """How challengers are trained."""
    promotion: PromotionPolicy = PromotionPolicy()
    """When a challenger is promoted."""


class Compared(Stored):
    """One metric of champion and challenger on the same set."""

    set: str
    metric: str
    champion: float
    challenger: float
    low: float
    """Lower end of the bootstrap interval of the difference, challenger minus champion."""
    high: float
    """Upper end of the interval."""

    @property
    def verdict(self) -> Literal["better", "equal", "worse"]:
        """`equal`: the interval of the difference contains zero."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "equal"


class CodesChoice(Stored):
    """Whether the codes were extended or rebuilt, and the numbers behind the choice."""

    action: Literal["extend", "rebuild"]
    because: str
    identities: int = Field(ge=0)
    new_identities: int | None = None
    """None when the identities are not a superset of the champion's."""
    occupancy: float | None = None
    """Share of the champion's code tree that would be occupied."""
    separation: float | None = None
    """Smallest distance between two code vectors, new identities included."""
    separation_before: float | None = None
    """Smallest distance after the last rebuild."""


class Decision(Stored):
    """One entry of a tag's history. It is written once and never changed; the tag follows the last entry."""

    number: PositiveInt
    tag: TagName
    kind: Literal["first", "promoted", "kept", "by_hand", "rolled_back"]
    champion: Key
    """The model in use from now on."""
    before: Key | None = None
    """The model in use until now."""
    challenger: Key | None = None
    because: str
    made_at: datetime
    ingestion: Key | None = None
    """The ingestion that the decision is about."""
    evaluation: Key | None = None
    """Scores of the model in use from now on."""
    evaluations: dict[Literal["champion", "challenger"], Key] = Field(default_factory=dict)
    """The scores that were compared."""
    run_id: str | None = None
    metrics: tuple[Compared, ...] = ()
    codes: CodesChoice | None = None
    fine_tuned: bool | None = None
    policy: dict[str, Any] = Field(default_factory=dict)


class RetrainingResult(Stored):
    """The outcome of one `gif retrain`."""

    outcome: Literal["nothing_new", "first", "promoted", "kept"]
    message: str
    decision: Decision | None = None
