"""Settings of training: backbone, objective (Eq. 7, 8, 10) and schedule."""

import re
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
from schemas.base import Frozen, Job
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
HeadName = Literal[
    "gif",
    "arcface",
    "cosface",
    "combined_margin",
    "adaface",
    "partial_fc",
    "curricularface",
    "magface",
    "broadface",
    "groupface",
    "dul",
    "virtual_fc",
    "dcq",
    "f2c",
]
SCALES: Final[dict[str, float]] = {"gif": 16.0, "virtual_fc": 32.0, "dcq": 50.0, "f2c": 32.0}
MARGINS: Final[dict[str, float]] = {
    "arcface": 0.5,
    "cosface": 0.4,
    "partial_fc": 0.4,
    "adaface": 0.4,
    "curricularface": 0.5,
    "magface": 0.45,
    "broadface": 0.5,
    "groupface": 0.5,
    "dul": 0.5,
    "virtual_fc": 0.5,
    "dcq": 0.3,
    "f2c": 0.4,
}
AVERAGE_DECAYS: Final[dict[str, float]] = {"dcq": 0.999, "f2c": 0.99}
IMAGES_PER_IDENTITY: Final[dict[str, int]] = {"virtual_fc": 10, "dcq": 2, "f2c": 2}
BROADFACE_QUEUE: Final = 32_768
UNSAMPLED: Final = ("broadface", "virtual_fc", "dcq", "f2c")
"""Heads that cannot use a sample of the rows."""
WITHOUT_SAMPLE_NEGATIVES: Final = ("groupface", "dul", "virtual_fc", "dcq", "f2c")
"""Heads whose images no row of one identity stands for, or whose network gives more than a feature."""
OTHER_OUTPUTS: Final = ("groupface", "dul")
"""Heads that train a network with more tensors than the backbone's."""
WITHOUT_FREEZING: Final = ("groupface", "dul", "dcq", "f2c")
"""Heads whose network gives more than a feature in training, or that compare with its average."""
SAMPLE_RATES: Final[dict[str, float]] = {"partial_fc": 0.3}
RATES: Final = {"sgd": 0.1, "adamw": 1e-4}
DECAYS: Final = {"sgd": 1e-4, "adamw": 0.1}
"""Defaults of the paper by optimizer."""
SHARED_GRADIENT: Final = 0.3
"""Share of the gradient of L_C that reaches the network where L_AR has negatives."""
TokenWeights = Literal["uniform", "increasing", "decreasing", "gaussian"]


def follow_optimizer(usual: dict[str, float]) -> BeforeValidator:
    """Resolve null to the optimizer's default, so that a stored configuration always holds the number."""

    def resolve(given: Any, info: ValidationInfo) -> Any:
        return usual.get(info.data.get("optimizer", ""), 1.0) if given is None else given

    return BeforeValidator(resolve, json_schema_input_type=NonNegativeFloat | None)


def _is_key(text: str) -> bool:
    return re.fullmatch(KEY_PATTERN, text) is not None


CodeVectors = Literal["frozen", "mapped", "living"]


def _follow_negatives(given: Any, info: ValidationInfo) -> Any:
    """Resolve null, so that a stored configuration always holds the choice; refuse what cannot learn."""
    negatives = info.data.get("negatives", 1)
    if given in ("mapped", "living") and not negatives:
        raise ValueError(
            f"{given} code vectors need negatives, or all of them would move to one point: set training.negatives "
            "above 0, or training.code_vectors to frozen, as in the paper"
        )
    return ("living" if negatives else "frozen") if given is None else given


def _follow_alignment(given: Any, info: ValidationInfo) -> Any:
    """Resolve null: without L_AR, or with one that has no negatives, L_C alone keeps features apart."""
    has_negatives = info.data.get("gamma", 1) and info.data.get("negatives", 1)
    return (SHARED_GRADIENT if has_negatives else 1.0) if given is None else given


_choose_code_gradient = BeforeValidator(_follow_alignment, json_schema_input_type=Probability | None)
_choose_code_vectors = BeforeValidator(_follow_negatives, json_schema_input_type=CodeVectors | None)


class AugmentationConfig(Frozen):
    """Probability of each augmentation of a training image; each is drawn independently."""

    low_resolution: Probability = 0.0
    """Probability of downscaling to 20 to 80 % of the side and upscaling again."""
    blur: Probability = 0.0
    """Probability of a Gaussian blur with a standard deviation of 0.5 to 1.5 pixels."""
    hsv: Probability = 0.0
    """Probability of shifting the hue by up to 20 degrees and scaling saturation and value by up to 20 %."""
    grey: Probability = 0.0
    """Probability of converting to greyscale."""
    crop: Probability = 0.0
    """Probability of blackening all but a random rectangle of 20 to 100 % of the area, as AdaFace does; its aspect is
    3:4 to 4:3."""


class TrainingConfig(Frozen):
    """Faces, codes and code vectors → a face recognition model."""

    backbone: BackboneName = "iresnet100"
    """Architecture of the network. The output dimension is that of the code vectors."""
    head: HeadName = "gif"
    """`gif`: the paper's head on identity codes. Most others are classifiers with one row per identity, sharded over
    the processes; `partial_fc` is `cosface` with a `sample_rate` of 0.3. `virtual_fc` has few anchors, `dcq` and `f2c`
    a queue and a pool of features of a moving average of the network."""
    scale: PositiveFloat | None = None
    """Scale s of the cosine logits (Eq. 1 and 7); null: 16 for `gif`, 32 for `virtual_fc` and `f2c`, 50 for
    `dcq`, 64 for the classifiers."""
    margin: NonNegativeFloat | None = None
    """Margin of the true class, or of a token's true value in `gif`; null: that of the head's authors, 0.5 for
    `arcface`, `curricularface`, `broadface`, `groupface`, `dul` and `virtual_fc`, 0.45 for the shortest features of
    `magface`, 0.4 for `cosface`, `partial_fc`, `adaface` and `f2c`, 0.3 for `dcq`, and 0 for `gif`, as in the paper."""
    margins: tuple[Annotated[float, Field(ge=1)], NonNegativeFloat, NonNegativeFloat] = (1.0, 0.5, 0.0)
    """m1, m2 and m3 of the head `combined_margin`: cos(m1·θ + m2) - m3."""
    sample_rate: float | None = Field(default=None, gt=0, le=1)
    """Share of the rows of a classifier used in a step, including those of the batch's identities (PartialFC). It works
    with any margin but not with `broadface`, whose queue needs all rows, nor with `virtual_fc`. null: 0.3 for
    `partial_fc`, else 1."""
    interclass_filter: float | None = Field(default=None, gt=0, lt=1)
    """Cosine above which another identity's row is taken for the same person under a second label: a classifier then
    counts it as if it were 0, as insightface does. null: no filter."""
    norm_weight: NonNegativeFloat = 35.0
    """Weight λ of the penalty of `magface`, which makes features longer."""
    queue_size: PositiveInt | None = None
    """Features of earlier images that `broadface` and `dcq` keep, and identities in the pool of `f2c`. null: 32,768 for
    `broadface`; for the others a tenth of the identities, and at least `batch_size`."""
    anchors: PositiveInt | None = None
    """Anchors of `virtual_fc`; null: a hundredth of the identities, and at least twice as many as a step has."""
    groups: PositiveInt = 32
    """Groups of `groupface`."""
    average_decay: float | None = Field(default=None, ge=0, lt=1)
    """Share of the network's moving average that remains in a step; null: 0.999 for `dcq`, 0.99 for `f2c`."""
    images_per_identity: PositiveInt | None = None
    """Images of one identity that follow each other in a batch; an epoch has as many steps as with 1. Half of a batch
    of `f2c` are pairs of identities drawn alike, and half are images drawn alike. null: 10 for `virtual_fc`, 2 for
    `dcq` and `f2c`, else 1."""
    gamma: NonNegativeFloat = 1.0
    """Weight γ of L_AR in Eq. 10; 0: train on codes only."""
    code_weight: NonNegativeFloat = 1.0
    """Weight of L_C in Eq. 10; 0: train on L_AR only, and the model cannot identify by codes."""
    token_weights: TokenWeights = "uniform"
    """Weights λ of the tokens in Eq. 7 along the code; they sum to 1."""
    hidden_layers: NonNegativeInt = 2
    """Hidden layers between the feature and each token's classifier."""
    negatives: NonNegativeInt = 512
    """Number of other identities drawn in every step as negatives of L_AR; the cost does not depend on the number of
    identities. 0: the paper's Eq. 8, which has no negatives. The other defaults are the paper's."""
    code_gradient: Annotated[Probability, _choose_code_gradient] = Field(default=None, validate_default=True)
    """Share of the gradient of L_C that reaches the network. 0: the token heads learn to read codes from features that
    L_AR alone shapes. 1: L_C shapes them too, as in the paper. null: 0.3, or 1 if L_AR has no negatives or no
    weight, as then only L_C keeps features apart."""
    alignment_scale: PositiveFloat = 16.0
    """Scale of the cosine logits of L_AR with negatives."""
    alignment_margin: NonNegativeFloat = 0.2
    """Margin subtracted from z·h_y in L_AR with negatives."""
    code_vectors: Annotated[CodeVectors, _choose_code_vectors] = Field(default=None, validate_default=True)
    """What becomes of the code vectors in training. `frozen`: they stay as they are, as in the paper. `mapped`: a small
    network that all identities share moves them. `living`: those in use learn as well, from where separation put them.
    null: `living`, or `frozen` without negatives, where anything that moves would end at one point."""
    map_width: PositiveInt = 512
    """Width of the network that moves `mapped` code vectors, and `living` ones if a step does not use all of them."""
    row_rate: NonNegativeFloat = 3.0
    """Learning rate of `living` code vectors: one that is in use n times makes n moves, whose angles have a tangent of
    about this divided by √n before the schedule lowers them."""
    rows_from: Literal["random", "code_vectors"] = "random"
    """Where the rows of the classifiers start. `code_vectors`: at H, as `living` code vectors of `gif` do."""
    sample_negatives: NonNegativeInt = 0
    """Number of recent features, beside those of the batch, that an image is compared with, whatever the head: those
    of other identities are negatives. The cost does not depend on the number of identities. 0: none, and none of the
    batch, as in the paper."""
    sample_positives: bool = True
    """Whether the other images of an image's identity in the batch and the queue are positives in that term, as the row
    of the identity is."""
    sample_weight: NonNegativeFloat = 1.0
    """Weight of that term of the loss."""
    sample_scale: PositiveFloat = 16.0
    """Scale of the cosines between images."""
    sample_margin: NonNegativeFloat = 0.2
    """Margin subtracted from the cosines to positives in that term."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The paper trains ResNets with `sgd` for 20 epochs and ViTs with `adamw` for 40."""
    learning_rate: Annotated[PositiveFloat, follow_optimizer(RATES)] = Field(default=None, validate_default=True)
    """Peak learning rate; null: the paper's, 0.1 for `sgd` and 0.0001 for `adamw`."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of `sgd`; `adamw` ignores it."""
    weight_decay: Annotated[NonNegativeFloat, follow_optimizer(DECAYS)] = Field(default=None, validate_default=True)
    """Weight decay; null: the paper's, 0.0001 for `sgd` and 0.1 for `adamw`."""
    epochs: PositiveInt = 20
    """Passes over the training faces."""
    batch_size: PositiveInt = 512
    """Images per optimizer step, over all processes."""
    batch_size_per_process: PositiveInt | None = None
    """Images per optimizer step of one process: sets `batch_size` to this times `execution.processes` times
    `execution.nodes`, which then must be given. null: `batch_size` counts."""
    schedule: Literal["cosine", "linear", "step"] = "cosine"
    """How the learning rate falls after the warm-up: along a cosine to 0, linearly to 0 as in insightface, or to a
    tenth at each of `drops`."""
    drops: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.5, 0.75, 0.9)
    """Shares of the training after which the schedule `step` divides the learning rate by 10."""
    warmup_steps: NonNegativeInt = 0
    """Steps during which the learning rate rises linearly from 0."""
    accumulation: PositiveInt = 1
    """Micro-batches per optimizer step. Raise it when a batch does not fit the device's memory."""
    clip_norm: PositiveFloat | None = None
    """Largest gradient norm; larger gradients are scaled down. null: no clipping."""
    clip_scope: Literal["all", "backbone"] = "all"
    """Whose gradients `clip_norm` bounds: backbone and head together, or the backbone alone as in insightface, where
    the head's stay as they are."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of the backbone's computation; the head and the loss always use fp32."""
    sync_batch_norm: bool = True
    """Compute batch statistics over the images of all processes, so that the number of processes does not change the
    result. false: over each process's own images, which is faster on many GPUs."""
    max_skipped: PositiveInt = 10
    """Training fails after this many consecutive steps with a non-finite loss or gradient; such steps are skipped."""
    val_pairs: NonNegativeInt = 300
    """Genuine pairs, and as many impostor pairs, for validation after every epoch: from the held-out identities and
    from each pair file in `evaluation.sets`. 0: no validation."""
    flip: bool = True
    """Mirror training images horizontally with probability 0.5."""
    augmentation: AugmentationConfig = AugmentationConfig()
    """Further augmentations; all off by default."""
    start_from: str | None = None
    """The key of a training to start from: its backbone, and its head if that has the same codes or identities. Or a
    file or URL of weights for the backbone alone: insightface's `backbone.pth` or `checkpoint_gpu_0.pt`, safetensors,
    or the result of `gif export torch`; no code in it is run. null: random weights."""
    freeze: PositiveInt | None = None
    """Epochs at the beginning in which only the head learns; batch statistics of the backbone stay as well. null: 0."""
    backbone_rate: PositiveFloat | None = None
    """Factor of the backbone's learning rate, such as 0.1 to fine-tune it gently. null: 1."""
    teacher: str | None = None
    """File or URL of weights of a network that this one learns from as well (distillation); its features must have the
    dimensions of the code vectors. null: none."""
    teacher_backbone: BackboneName | None = None
    """Architecture of the teacher; null: that of `backbone`."""
    teacher_weight: PositiveFloat | None = None
    """Weight of 1 - cos between the features of both; null: 10."""

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        given = self.start_from
        if given is not None and not _is_key(given) and "." not in given and "/" not in given:
            raise ValueError(
                f"start_from={given}: neither the key of a training, 64 digits, nor a file or URL of weights"
            )
        if (self.freeze or self.teacher) and self.head in WITHOUT_FREEZING:
            raise ValueError(f"{self.head} works neither with training.freeze nor with training.teacher: remove them")
        if self.freeze is not None and self.freeze >= self.epochs:
            raise ValueError(f"freeze={self.freeze}: the backbone must learn in some of the {self.epochs} epochs")
        return self

    @model_validator(mode="after")
    def _take_margins(self) -> Self:
        if self.head == "combined_margin" and self.margin is not None:
            raise ValueError("combined_margin ignores training.margin: set its three margins in training.margins")
        return self

    @model_validator(mode="after")
    def _keep_sampling_apart(self) -> Self:
        if self.sample_rate is not None and self.sample_rate < 1 and self.head in UNSAMPLED:
            raise ValueError(f"{self.head} cannot sample rows: remove training.sample_rate, or choose another head")
        return self

    @model_validator(mode="after")
    def _make_long_features_pay(self) -> Self:
        """MagFace's condition on λ: below it the loss has no minimum at a finite norm."""
        slope, squares = 0.35 / 100, 110**2 * 10**2 / (110**2 - 10**2)
        least = self.scale_of_head * slope * squares
        if self.head == "magface" and self.norm_weight < least:
            raise ValueError(
                f"magface with training.norm_weight={self.norm_weight:g} gives no best length of a feature: "
                f"set at least {least:.4g} for a scale of {self.scale_of_head:g}"
            )
        return self

    @model_validator(mode="after")
    def _keep_pairs(self) -> Self:
        if self.head in AVERAGE_DECAYS and self.images_per_identity not in (None, 2):
            raise ValueError(f"{self.head} compares pairs: remove training.images_per_identity")
        if self.sample_negatives and self.head in WITHOUT_SAMPLE_NEGATIVES:
            raise ValueError(f"{self.head} cannot be combined with training.sample_negatives: set it to 0")
        return self

    @property
    def start_file(self) -> str | None:
        """The file or URL of weights to start from; None if that is a training, or nothing."""
        return None if self.start_from is None or _is_key(self.start_from) else self.start_from

    def maps_code_vectors(self, identities: int) -> bool:
        """Whether code vectors of so many identities go through the shared map."""
        return self.code_vectors == "mapped" or (self.code_vectors == "living" and self.negatives < identities)

    @property
    def scale_of_head(self) -> float:
        """`scale`, or the default of the head."""
        return SCALES.get(self.head, 64.0) if self.scale is None else self.scale

    @property
    def images_per_identity_of_head(self) -> int:
        """`images_per_identity`, or the default of the head."""
        return self.images_per_identity or IMAGES_PER_IDENTITY.get(self.head, 1)

    @property
    def average_decay_of_head(self) -> float:
        """`average_decay`, or the default of the head."""
        return AVERAGE_DECAYS.get(self.head, 0.0) if self.average_decay is None else self.average_decay

    def queue_size_of_head(self, identities: int) -> int:
        """`queue_size`, or the default of the head for so many identities."""
        usual = BROADFACE_QUEUE if self.head == "broadface" else max(identities // 10, self.batch_size)
        return self.queue_size or usual

    def anchors_of_head(self, identities: int) -> int:
        """`anchors`, or its default for so many identities."""
        in_a_step = -(-self.batch_size // self.images_per_identity_of_head)
        return self.anchors or max(identities // 100, 2 * in_a_step)

    @property
    def sample_rate_of_head(self) -> float:
        """`sample_rate`, or the default of the head."""
        return SAMPLE_RATES.get(self.head, 1.0) if self.sample_rate is None else self.sample_rate

    @property
    def margin_of_head(self) -> float:
        """`margin`, or the default of the head."""
        return MARGINS.get(self.head, 0.0) if self.margin is None else self.margin


class TrainingTeacher(Frozen):
    """A frozen network that a training learns from."""

    backbone: BackboneName
    file: str


class TrainingStart(Frozen):
    """Weights of an earlier training, as local safetensors files, or published weights of a backbone."""

    backbone: str
    head: str | None = None
    """None when its head has other codes or identities."""
    code_vectors: str | None = None
    """Code vectors that have learned; None when there are none, or without the head."""


class TrainingJob(Job):
    """Input of one training process. Files are local to its machine; checkpoints are in the shared store."""

    config: TrainingConfig
    seed: int
    workers: PositiveInt
    """Decoder processes per training process."""
    shards: tuple[str, ...]
    """Arrow files of the training faces."""
    held_out: tuple[str, ...]
    """Arrow files of the held-out faces, for validation."""
    val_sets: tuple[PairFiles, ...] = ()
    """Pair files for validation."""
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
    background_checkpoints: bool = False
    code_vector_memory: NonNegativeFloat | None = None
    """Gigabytes of device memory for all code vectors; None: a quarter of the device's."""
    code_vector_precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """In which the device holds those that do not learn."""
    compile: bool
    gradient_checkpointing: bool
    start: TrainingStart | None = None
    """Initial weights; None: random."""
    teacher: TrainingTeacher | None = None
    """A network that is learned from as well."""
