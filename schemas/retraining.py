"""Retraining: the policy for challengers, and champion decisions as they are stored."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen, Stored

CHAMPION: Final = "champion"
Key = Annotated[str, Field(pattern=KEY_PATTERN)]
MetricName = Annotated[
    str, Field(pattern=r"^(accuracy|rank_\d+|(tar_at_far|tpir_at_fpir)_0\.\d+|(tar_at_far|tpir_at_fpir)_1e-\d+)$")
]
TagName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$")]


class CodesPolicy(Frozen):
    """When the champion's codes are extended, and when codes are rebuilt."""

    prefer: Literal["extend", "rebuild"] = "extend"
    """`extend`: known identities keep their codes and new ones get free codes, unless one of the next two applies."""
    fullest: float = Field(default=0.95, gt=0, le=1)
    """Codes are rebuilt when more than this share of all codes would be used."""
    least_separation: float = Field(default=0.5, ge=0, le=1)
    """Codes are rebuilt when the minimum distance between two code vectors would fall below this share of its value
    when codes were last rebuilt."""


class TrainingPolicy(Frozen):
    """How a challenger is trained."""

    fine_tune: Literal["extended", "always", "never"] = "extended"
    """When training starts from the champion's weights: if its codes were extended, always, or never (from scratch).
    Token heads are reused only with extended codes."""
    epochs_share: float = Field(default=0.25, gt=0, le=1)
    """Share of the configured epochs and warm-up steps when it is fine-tuned; at least one epoch."""
    learning_rate_share: PositiveFloat = 0.1
    """Share of the configured learning rate when it is fine-tuned."""


class PromotionPolicy(Frozen):
    """The rule: no metric is lower than the champion's by more than chance explains, and at least one is higher."""

    metrics: tuple[MetricName, ...] = Field(
        default=("accuracy", "tar_at_far_0.001", "tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1"), min_length=1
    )
    """Compared on every set that has them and is large enough."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Share of the resampled differences that the interval of a metric covers."""
    replicas: int = Field(default=1000, ge=100)
    """Number of bootstrap replicas."""
    seed: int = Field(default=0, ge=0)


class RetrainingPolicy(Frozen):
    """What a retraining does when the sources have changed."""

    tag: TagName = CHAMPION
    """Tag of the model in use; a store may hold several lines of champions, each with its own tag."""
    codes: CodesPolicy = CodesPolicy()
    training: TrainingPolicy = TrainingPolicy()
    promotion: PromotionPolicy = PromotionPolicy()


class Compared(Stored):
    """One metric of champion and challenger on the same set."""

    set: str
    metric: str
    champion: float
    challenger: float
    low: float
    """Lower end of the bootstrap interval of the difference, challenger minus champion."""
    high: float
    """Upper end of that interval."""

    @property
    def verdict(self) -> Literal["better", "equal", "worse"]:
        """Return `equal` if the interval of the difference contains zero."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "equal"


class CodesChoice(Stored):
    """Whether the codes were extended or rebuilt, and the metrics that decided it."""

    action: Literal["extend", "rebuild"]
    because: str
    identities: int = Field(ge=0)
    new_identities: int | None = None
    """Null when the identities do not begin with those of the champion."""
    occupancy: float | None = None
    """Share of the champion's codes that all identities together would use."""
    separation: float | None = None
    """Minimum distance between two code vectors, including the new identities."""
    separation_before: float | None = None
    """The same when codes were last rebuilt."""


class Decision(Stored):
    """One entry in the history of a tag: created once, never changed; the last entry determines the tag."""

    number: PositiveInt
    tag: TagName
    kind: Literal["first", "promoted", "kept", "by_hand", "rolled_back"]
    champion: Key
    """The model in use after the decision."""
    before: Key | None = None
    """The model in use before it."""
    challenger: Key | None = None
    because: str
    made_at: datetime
    ingestion: Key | None = None
    """The ingestion that caused the retraining."""
    evaluation: Key | None = None
    """Scores of the model in use after the decision."""
    evaluations: dict[Literal["champion", "challenger"], Key] = Field(default_factory=dict)
    """The scores that were compared."""
    run_id: str | None = None
    metrics: tuple[Compared, ...] = ()
    codes: CodesChoice | None = None
    fine_tuned: bool | None = None
    policy: dict[str, Any] = Field(default_factory=dict)


class RetrainingResult(Stored):
    """The outcome of `retrain`."""

    outcome: Literal["nothing_new", "first", "promoted", "kept"]
    message: str
    decision: Decision | None = None
