"""Settings of training: backbone, objective (Eq. 7, 8, 10) and schedule."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.base import Frozen

Probability = Annotated[float, Field(ge=0, le=1)]
BackboneName = Literal["iresnet_tiny", "iresnet18", "iresnet34", "iresnet50", "iresnet100", "iresnet200"]
TokenWeights = Literal["uniform", "increasing", "decreasing", "gaussian"]


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
    head: Literal["gif"] = "gif"
    scale: PositiveFloat = 16.0
    """s, the factor on the cosine logits of Eq. 7."""
    gamma: NonNegativeFloat = 1.0
    """Weight of L_AR in Eq. 10; 0: codes alone."""
    code_weight: NonNegativeFloat = 1.0
    """Weight of L_C in Eq. 10; 0: L_AR alone."""
    token_weights: TokenWeights = "uniform"
    """λ of Eq. 7 along the code; its sum is 1."""
    token_margin: NonNegativeFloat = 0.0
    """Taken off the cosine of a token's right value in Eq. 7; the paper has none."""
    hidden_layers: NonNegativeInt = 2
    """Layers between the feature and a token's classifier."""
    negatives: NonNegativeInt = 1024
    """People drawn in every step, whose code vectors z·h_y must stand out from in L_AR; the cost does not depend on how
    many people there are. 0: the paper's Eq. 8, which only pulls; all else is the paper's by default."""
    alignment_scale: PositiveFloat = 16.0
    """The factor on the cosines of L_AR with negatives."""
    alignment_margin: NonNegativeFloat = 0.2
    """Taken off z·h_y in L_AR with negatives."""
    code_map: NonNegativeInt = 512
    """Width of a small network, learned with the backbone and shared by everybody, that moves the code vectors in L_AR
    with negatives; 0: they stay where they are, as they do without negatives and in the paper."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: PositiveFloat = 0.1
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD; AdamW has its own."""
    weight_decay: NonNegativeFloat = 1e-4
    epochs: PositiveInt = 20
    batch_size: PositiveInt = 512
    """Images of an optimizer step, over all processes together."""
    warmup_steps: NonNegativeInt = 0
    flip: bool = True
    """Mirror every second image at random."""
    augmentation: AugmentationConfig = AugmentationConfig()
