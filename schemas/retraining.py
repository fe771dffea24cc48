"""Retraining: the policy of a challenger, and the decisions about who is champion, as they are stored."""

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
    """When the champion's codes are extended, and when codes are made anew."""

    prefer: Literal["extend", "rebuild"] = "extend"
    """`extend`: all identities keeps their code and new identities get free ones, as long as the next two hold."""
    fullest: float = Field(default=0.95, gt=0, le=1)
    """Codes are made anew when more than this share of the code tree would be taken."""
    least_separation: float = Field(default=0.5, ge=0, le=1)
    """And when the least distance between two code vectors would be below this share of what it was when codes were
    last made anew."""


class TrainingPolicy(Frozen):
    """How a challenger learns."""

    fine_tune: Literal["extended", "always", "never"] = "extended"
    """From the champion's weights when its codes were extended, always, or never: then it is trained anew. Token heads
    carry over only with codes that were extended."""
    epochs_share: float = Field(default=0.25, gt=0, le=1)
    """Of the configured epochs and warm-up, when it is fine-tuned; at least one epoch."""
    learning_rate_share: PositiveFloat = 0.1
    """Of the configured learning rate, when it is fine-tuned."""


class PromotionPolicy(Frozen):
    """What a challenger must show: no metric below the champion's by more than chance explains, and one above."""

    metrics: tuple[MetricName, ...] = Field(
        default=("accuracy", "tar_at_far_0.001", "tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1"), min_length=1
    )
    """Of every set, those that it has and is large enough for."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Share of the resampled differences that the interval of a metric holds."""
    replicas: int = Field(default=1000, ge=100)
    """How often identities are drawn anew."""
    seed: int = Field(default=0, ge=0)


class RetrainingPolicy(Frozen):
    """What a scheduled retraining does when there is something new."""

    tag: TagName = CHAMPION
    """Of the model in use; a store may have several lines of champions, each with a tag of its own."""
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
    """Least difference, challenger minus champion, that chance explains: the lower end of the bootstrap interval."""
    high: float
    """The upper end."""

    @property
    def verdict(self) -> Literal["better", "equal", "worse"]:
        """`equal`: the interval of the difference holds zero."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "equal"


class CodesChoice(Stored):
    """Whether the codes were extended or made anew, and the metrics that decided it."""

    action: Literal["extend", "rebuild"]
    because: str
    identities: int = Field(ge=0)
    new_identities: int | None = None
    """Null when they are not the champion's identities and some more."""
    occupancy: float | None = None
    """Share of the champion's code tree that all identities together would take."""
    separation: float | None = None
    """Least distance between two code vectors with the new identities among them."""
    separation_before: float | None = None
    """The same when codes were last made anew."""


class Decision(Stored):
    """One entry of the history of a tag: it is created once and never changed, and the tag follows from it."""

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
    """The faces that were new."""
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
    """What a run of `retrain` came to."""

    outcome: Literal["nothing_new", "first", "promoted", "kept"]
    message: str
    decision: Decision | None = None
