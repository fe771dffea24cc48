"""Weights from files: read without running code from them, and refused when they are not the model's."""

import logging
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from schemas.errors import GifError

NESTED: Final = ("state_dict", "model", "teacher", "student")
"""Where training scripts put the weights among other things."""
PREFIXES: Final = ("module.", "backbone.")
SHOWN: Final = 5

logger = logging.getLogger(__name__)
Weights = dict[str, Tensor]


class WeightsError(GifError, RuntimeError):
    """Weights cannot be had or are not the model's; the message says which and what to do."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file or of a PyTorch state dict; no code in it is run."""
    try:
        found: Any = load_file(path) if _is_safetensors(path) else _load_state(path)
    except Exception as error:  # a damaged file makes its readers fail in any way
        raise WeightsError(f"{path} cannot be read as weights: {_reason(error)}") from error
    return _unwrap(found, path)


def load_weights(model: nn.Module, weights: Weights, path: Path, convert: Callable[[Any, Weights], Weights]) -> None:
    """Give the model its weights; after `convert` every tensor must be there, in its shape, and none too many."""
    try:
        weights = convert(model, dict(weights))
    except Exception as error:  # conversions expect tensors as they should be; what is wrong is said below
        logger.debug("%s cannot be converted: %s", path, error)
    misfits = list(islice(_misfits(model.state_dict(), weights), SHOWN + 1))
    if misfits:
        more = "; …" if len(misfits) > SHOWN else ""
        raise WeightsError(f"{path} does not fit the model: {'; '.join(misfits[:SHOWN])}{more}")
    model.load_state_dict(weights)


def _misfits(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Iterator[str]:
    for name, tensor in wanted.items():
        if name not in found:
            yield f"{name} is missing"
        elif found[name].shape != tensor.shape:
            yield f"{name} is {list(found[name].shape)} where the model has {list(tensor.shape)}"
    yield from (f"the model has no {name}" for name in found if name not in wanted)


def _load_state(path: Path) -> Any:
    """A state dict of torch; in the zip files of today every tensor has a checksum, which torch does not look at."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged")
    return torch.load(path, "cpu", weights_only=True)


def _is_safetensors(path: Path) -> bool:
    """By name, or by content: the length of a JSON header, and the header."""
    with path.open("rb") as file:
        start = file.read(9)
    return path.suffix == ".safetensors" or start[8:9] == b"{"


def _unwrap(found: Any, path: Path) -> dict[str, Tensor]:
    for name in NESTED:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not found or not all(isinstance(each, Tensor) for each in found.values()):
        raise WeightsError(f"{path} holds no state dict: a dictionary of names and tensors is expected")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    weights: dict[str, Tensor] = found
    return weights


def _reason(error: Exception) -> str:
    """The first sentence; torch goes on with advice to switch its safety off."""
    return str(error).strip().splitlines()[0].split(". ")[0] if str(error).strip() else type(error).__name__
