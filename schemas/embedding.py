"""Settings of embedding: which encoder gives an identity its vector (Eq. 3)."""

from typing import Literal

from pydantic import Field

from schemas.base import Frozen


class EmbeddingConfig(Frozen):
    """Faces → one vector per identity."""

    encoder: Literal["open_clip"] = "open_clip"
    model: str = "ViT-B-32"
    """An architecture that open_clip knows, or `tiny-clip`, the small one for CPUs."""
    pretrained: str = Field(default="openai", min_length=1)
    """A tag that open_clip knows, a local checkpoint, or `random`: untrained weights, asked for by name."""
