"""Build a backbone by its name."""

from collections.abc import Callable
from typing import Final

from gif_core.backbones.base import Backbone
from gif_core.backbones.iresnet import iresnet18, iresnet34, iresnet50, iresnet100, iresnet200, iresnet_tiny
from gif_core.backbones.mobilefacenet import mobilefacenet
from gif_core.backbones.vit import vit_base, vit_cvlface_base, vit_large, vit_small, vit_tiny

BACKBONES: Final[dict[str, Callable[[int], Backbone]]] = {
    "iresnet_tiny": iresnet_tiny,
    "iresnet18": iresnet18,
    "iresnet34": iresnet34,
    "iresnet50": iresnet50,
    "iresnet100": iresnet100,
    "iresnet200": iresnet200,
    "mobilefacenet": mobilefacenet,
    "vit_tiny": vit_tiny,
    "vit_small": vit_small,
    "vit_base": vit_base,
    "vit_large": vit_large,
    "vit_cvlface_base": vit_cvlface_base,
}


def build_backbone(name: str, embedding_dim: int, *, gradient_checkpointing: bool = False) -> Backbone:
    """The network called `name` with features of `embedding_dim` dimensions, those of the code vectors."""
    if name not in BACKBONES:
        raise ValueError(f"unknown backbone {name!r}; known backbones: {', '.join(BACKBONES)}")
    model = BACKBONES[name](embedding_dim)
    model.gradient_checkpointing = gradient_checkpointing
    return model
