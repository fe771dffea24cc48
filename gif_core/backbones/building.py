"""A backbone by its name."""

from collections.abc import Callable
from typing import Final

from torch import nn

from gif_core.backbones.iresnet import iresnet18, iresnet34, iresnet50, iresnet100, iresnet200, iresnet_tiny

BACKBONES: Final[dict[str, Callable[[int], nn.Module]]] = {
    "iresnet_tiny": iresnet_tiny,
    "iresnet18": iresnet18,
    "iresnet34": iresnet34,
    "iresnet50": iresnet50,
    "iresnet100": iresnet100,
    "iresnet200": iresnet200,
}


def build_backbone(name: str, embedding_dim: int) -> nn.Module:
    """The network called `name` with features of `embedding_dim`, which is the d of the code vectors."""
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}; there are: {', '.join(BACKBONES)}")
    return BACKBONES[name](embedding_dim)
