"""Settings of embedding: which encoder gives an identity its vector (Eq. 3)."""

from typing import Literal

from pydantic import Field, PositiveInt

from schemas.base import Frozen


class EmbeddingConfig(Frozen):
    """Faces → one vector per identity."""

    encoder: Literal["open_clip", "timm", "backbone"] = "open_clip"
    """Who builds it: `open_clip` for CLIP, `timm` for DINO, DINOv2 and everything else, `backbone` for a face
    recognition network such as those that training makes."""
    model: str = "ViT-B-32"
    """An architecture that the library knows, a name of `training.backbone`, or `tiny-clip`, the small CLIP that comes
    with the project."""
    pretrained: str = Field(default="openai", min_length=1)
    """A tag that the library knows, a local checkpoint (safetensors or a state dict), `synthetic` for the weights
    of tiny-clip, or `random`: untrained weights, asked for by name."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """What the encoder computes in. `auto`: bf16 on a GPU, or fp16 if it knows no bf16; fp32 on a CPU."""
    image_size: PositiveInt | None = None
    """Side of the encoder's input; None: the one it was trained with."""
