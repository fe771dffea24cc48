"""Weights that others have trained, such as insightface's `backbone.pth` and CVLFace's `model.pt`."""

from pathlib import Path
from typing import Any, Final

from torch import nn

from gif_core.encoders.weights import Weights, load_weights, read_weights

WRAPPER: Final = "net."
"""Where CVLFace has the network in its model."""


def load_foreign_weights(model: nn.Module, path: Path) -> None:
    """Give a backbone the weights of a file; no code in it is run, and every tensor must fit."""
    load_weights(model, read_weights(path), path, _unwrap)


def _unwrap(_: Any, weights: Weights) -> Weights:
    if all(name.startswith(WRAPPER) for name in weights):
        return {name.removeprefix(WRAPPER): tensor for name, tensor in weights.items()}
    return weights
