"""Settings of embedding: the encoder that computes identity vectors (Eq. 3)."""

from typing import Literal

from pydantic import Field, PositiveInt

from schemas.base import Frozen


class EmbeddingConfig(Frozen):
    """Faces → one identity vector per identity."""

    encoder: Literal["open_clip", "timm", "backbone"] = "open_clip"
    """Library that builds the encoder: `open_clip` for CLIP, `timm` for DINO, DINOv2 and other vision models,
    `backbone` for a face recognition network with the architectures of `training.backbone`."""
    model: str = "ViT-B-32"
    """Architecture: a name that the library knows, a value of `training.backbone`, or `tiny-clip`, the small CLIP
    that ships with the project."""
    pretrained: str = Field(default="openai", min_length=1)
    """Weights: a tag that the library knows, the path of a local checkpoint (safetensors or a state dict), `synthetic`
    for the weights of tiny-clip, or `random` for untrained weights."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the encoder's computation. `auto`: fp32 on a CPU; on a GPU bf16, or fp16 where the GPU lacks
    bf16."""
    image_size: PositiveInt | None = None
    """Side of the encoder's input in pixels; null: the size it was trained with."""
