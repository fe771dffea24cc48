"""Settings of training: backbone, objective (Eq. 7, 8, 10) and schedule."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.base import Frozen

BackboneName = Literal["iresnet_tiny", "iresnet18", "iresnet34", "iresnet50", "iresnet100", "iresnet200"]


class TrainingConfig(Frozen):
    """Faces + codes + code vectors → a face recognition model."""

    backbone: BackboneName = "iresnet100"
    head: Literal["gif"] = "gif"
    scale: PositiveFloat = 16.0
    """s, the factor on the cosine logits of Eq. 7."""
    gamma: NonNegativeFloat = 1.0
    """Weight of L_AR in Eq. 10."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: PositiveFloat = 0.1
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD; AdamW has its own."""
    weight_decay: NonNegativeFloat = 1e-4
    epochs: PositiveInt = 20
    batch_size: PositiveInt = 512
    warmup_steps: NonNegativeInt = 0
    flip: bool = True
    """Mirror every second image at random."""
