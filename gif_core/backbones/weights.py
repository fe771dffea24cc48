"""Opening published weights, such as insightface's `backbone.pth` and CVLFace's `model.pt`."""

from pathlib import Path
from typing import Any, Final

import torch

from gif_core.backbones.base import Backbone
from gif_core.backbones.factory import build_backbone
from gif_core.backbones.safe_loading import Weights, WeightsError, fit_weights, load_weights, read_weights
from gif_core.runtime import once_per_file

WRAPPER: Final = "net."
"""Prefix of the network's parameters in CVLFace's files."""
USUAL: Final = 512
"""Feature dimensions when the weights do not show them."""


def open_foreign_backbone(name: str, path: Path) -> Backbone:
    """The backbone called `name` with the weights of a file, and their feature dimension.

    No code in the file is run, and every tensor must fit.
    """
    weights = read_weights(path)
    model = build_backbone(name, _find_dim(name, weights))
    load_weights(model, weights, path, _unwrap)
    return model


@once_per_file
def find_misfit(path: Path, name: str | None, dim: int | None = None) -> str:
    """Why the file holds no weights, or none of the backbone `name` with features of `dim` dimensions, if given.

    Empty when it does. Builds no network.
    """
    try:
        weights = read_weights(path)
        if name is None:
            return ""
        found = _find_dim(name, weights)
        with torch.device("meta"):
            fit_weights(build_backbone(name, found), weights, path, _unwrap)
    except WeightsError as error:
        return str(error)
    return "" if dim in (None, found) else f"{path} gives features of {found} dimensions, not of {dim}"


def _find_dim(name: str, weights: Weights) -> int:
    """The feature dimension that the weights of a backbone show."""
    with torch.device("meta"):
        last = [each for each, tensor in build_backbone(name, USUAL).state_dict().items() if tensor.ndim][-1]
    found = _unwrap(None, weights).get(last)
    return USUAL if found is None or not found.ndim else len(found)


def read_backbone(path: Path) -> Weights:
    """The tensors of a backbone, whatever wrapper it was saved in; no code in the file is run."""
    return _unwrap(None, read_weights(path))


def _unwrap(_: Any, weights: Weights) -> Weights:
    if all(name.startswith(WRAPPER) for name in weights):
        return {name.removeprefix(WRAPPER): tensor for name, tensor in weights.items()}
    return weights
