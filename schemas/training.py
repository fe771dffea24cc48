"""Settings of training: backbone, objective (Eq. 7, 8, 10) and schedule."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    model_validator,
)

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen
from schemas.evaluation import PairFiles

Probability = Annotated[float, Field(ge=0, le=1)]
BackboneName = Literal[
    "iresnet_tiny",
    "iresnet18",
    "iresnet34",
    "iresnet50",
    "iresnet100",
    "iresnet200",
    "mobilefacenet",
    "vit_tiny",
    "vit_small",
    "vit_base",
    "vit_large",
    "vit_cvlface_base",
]
HeadName = Literal["gif", "arcface", "cosface", "combined_margin", "adaface", "partial_fc"]
SCALES: Final[dict[str, float]] = {"gif": 16.0}
MARGINS: Final[dict[str, float]] = {"arcface": 0.5, "cosface": 0.4, "partial_fc": 0.4, "adaface": 0.4}
RATES: Final = {"sgd": 0.1, "adamw": 1e-4}
DECAYS: Final = {"sgd": 1e-4, "adamw": 0.1}
"""The paper's, of either optimizer."""
TokenWeights = Literal["uniform", "increasing", "decreasing", "gaussian"]


def follow_optimizer(usual: dict[str, float]) -> BeforeValidator:
    """Null becomes the usual value of the optimizer, so that a configuration always says the number."""

    def resolve(given: Any, info: ValidationInfo) -> Any:
        return usual.get(info.data.get("optimizer", ""), 1.0) if given is None else given

    return BeforeValidator(resolve, json_schema_input_type=NonNegativeFloat | None)


class AugmentationConfig(Frozen):
    """How probable each disturbance of a training image is; each is decided for itself."""

    low_resolution: Probability = 0.0
    """Shrink it to between 20 and 80 % of its side, and enlarge it again."""
    blur: Probability = 0.0
    """Gaussian, of 0.5 to 1.5 pixels."""
    hsv: Probability = 0.0
    """Turn the hue by up to 20 degrees; change saturation and value by up to 20 %."""
    grey: Probability = 0.0
    """Take the colours away."""


class TrainingConfig(Frozen):
    """Faces + codes + code vectors → a face recognition model."""

    backbone: BackboneName = "iresnet100"
    head: HeadName = "gif"
    """`gif`: the paper's, on identity codes. The others have a row for each identity, shared out over the processes:
    `partial_fc` is `cosface` on a sample of the rows in every step."""
    scale: PositiveFloat | None = None
    """s, the factor on the cosine logits (Eq. 1 and 7); null: 16 for `gif`, 64 for the others."""
    margin: NonNegativeFloat | None = None
    """Of the right class, or of a token's right value in `gif`; null: 0.5 for `arcface`, 0.4 for `cosface`,
    `partial_fc` and `adaface`, 0 for `gif`, as in the paper."""
    margins: tuple[Annotated[float, Field(ge=1)], NonNegativeFloat, NonNegativeFloat] = (1.0, 0.5, 0.0)
    """m1, m2 and m3 of `combined_margin`: cos(m1·θ + m2) - m3."""
    sample_rate: float = Field(default=0.3, gt=0, le=1)
    """Share of the rows that take part in a step of `partial_fc`, those of the batch's identities among them."""
    gamma: NonNegativeFloat = 1.0
    """Weight of L_AR in Eq. 10; 0: codes alone."""
    code_weight: NonNegativeFloat = 1.0
    """Weight of L_C in Eq. 10; 0: L_AR alone, and nobody can be found by a code."""
    token_weights: TokenWeights = "uniform"
    """λ of Eq. 7 along the code; its sum is 1."""
    hidden_layers: NonNegativeInt = 2
    """Layers between the feature and a token's classifier."""
    negatives: NonNegativeInt = 512
    """Identities drawn in every step, whose code vectors z·h_y must exceed in L_AR; the cost does not depend on how
    many identities there are. 0: the paper's Eq. 8, which only pulls; all else is the paper's by default."""
    alignment_scale: PositiveFloat = 16.0
    """The factor on the cosines of L_AR with negatives."""
    alignment_margin: NonNegativeFloat = 0.2
    """Taken off z·h_y in L_AR with negatives."""
    code_map: NonNegativeInt = 512
    """Width of a small network, learned with the backbone and shared by all identities, that maps code vectors in L_AR
    with negatives; 0: they stay where they are, as they do without negatives and in the paper."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The paper trains ResNets with `sgd` for 20 epochs, ViTs with `adamw` for 40."""
    learning_rate: Annotated[PositiveFloat, follow_optimizer(RATES)] = Field(default=None, validate_default=True)
    """The highest; null: the paper's, 0.1 for `sgd` and 0.0001 for `adamw`."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD; AdamW has its own."""
    weight_decay: Annotated[NonNegativeFloat, follow_optimizer(DECAYS)] = Field(default=None, validate_default=True)
    """Null: the paper's, 0.0001 for `sgd` and 0.1 for `adamw`."""
    epochs: PositiveInt = 20
    batch_size: PositiveInt = 512
    """Images of an optimizer step, over all processes together."""
    warmup_steps: NonNegativeInt = 0
    accumulation: PositiveInt = 1
    """Parts of a batch that go through the network one after the other, when the whole does not fit its memory."""
    clip_norm: PositiveFloat | None = None
    """Largest norm of the gradient; null: as it comes."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What the backbone computes in; the head and its loss are always in fp32."""
    sync_batch_norm: bool = True
    """Normalise over the images of all processes, so that their number does not change the result. False is faster on
    many GPUs: each then normalises over its own images."""
    max_skipped: PositiveInt = 10
    """Steps in a row whose loss or gradient is not finite, which are skipped, before the training gives up."""
    val_pairs: NonNegativeInt = 300
    """Pairs of each kind that are verified after every epoch: of held-out identities, and of each file of pairs among
    `evaluation.sets`; 0: none."""
    flip: bool = True
    """Mirror every second image at random."""
    augmentation: AugmentationConfig = AugmentationConfig()
    start_from: str | None = Field(default=None, pattern=KEY_PATTERN)
    """Key of a training whose weights are the start: the backbone's, and the head's as far as it is about the same
    codes or the same identities; null: random weights."""

    @model_validator(mode="after")
    def _take_margins(self) -> Self:
        if self.head == "combined_margin" and self.margin is not None:
            raise ValueError("margin is of no matter to combined_margin: give its three, training.margins")
        return self

    @property
    def scale_of_head(self) -> float:
        """`scale`, or the usual one of the head."""
        return SCALES.get(self.head, 64.0) if self.scale is None else self.scale

    @property
    def margin_of_head(self) -> float:
        """`margin`, or the usual one of the head."""
        return MARGINS.get(self.head, 0.0) if self.margin is None else self.margin


class TrainingStart(Frozen):
    """Weights of an earlier training, as local safetensors files."""

    backbone: str
    head: str | None
    """Null when its head was about other codes or other identities."""


class TrainingJob(Frozen):
    """What a process that trains is told. Files are local to its machine, checkpoints in a store that all share."""

    config: TrainingConfig
    seed: int
    device: str
    workers: PositiveInt
    """Processes that decode images, for each process that trains."""
    shards: tuple[str, ...]
    """Faces to train on, as Arrow files."""
    held_out: tuple[str, ...]
    """Faces to verify, as Arrow files."""
    val_sets: tuple[PairFiles, ...] = ()
    """Files of pairs to verify."""
    codes: str
    """DuckDB file of the identity codes."""
    code_vectors: str
    """Safetensors file of the code vectors."""
    store: str
    checkpoints: str
    """Folder of the checkpoints in the store."""
    checkpoint_seconds: NonNegativeFloat
    checkpoint_steps: PositiveInt | None
    checkpoints_kept: PositiveInt
    compile: bool
    gradient_checkpointing: bool
    start: TrainingStart | None = None
    """Weights to begin with; null: random ones."""
