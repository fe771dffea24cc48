"""Reading weights from files without running code in them, and checking that they fit the model."""

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

NESTED: Final = ("state_dict_backbone", "state_dict", "model", "teacher", "student")
"""Keys under which training scripts store the state dict."""
PREFIXES: Final = ("module.", "backbone.")
"""Prefixes of parameter names that wrappers add."""
COUNTERS: Final = (torch.int64, torch.int32)
"""Types of buffers that count or number, such as `num_batches_tracked`."""
MASK: Final = "attn_mask"
"""Ending of buffers of minus infinity, with which CLIP's text tower is stored."""
SHOWN: Final = 5
"""Mismatches that an error message lists."""

logger = logging.getLogger(__name__)
Weights = dict[str, Tensor]


class WeightsError(GifError, RuntimeError):
    """Weights cannot be read or do not fit the model."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a PyTorch state dict, without running code in it."""
    if not path.is_file():
        raise WeightsError(f"{path} is not a file of weights")
    try:
        found: Any = load_file(path) if _is_safetensors(path) else _load_state(path)
    except Exception as error:  # damaged files raise all kinds of exceptions
        raise WeightsError(f"{path} cannot be read as weights: {_reason(error)}") from error
    weights = _unwrap(found, path)
    unfit = list(islice(_unfit(weights), SHOWN + 1))
    if unfit:
        raise WeightsError(f"{path} holds tensors that are no weights: {_some(unfit)}")
    return weights


def _unfit(weights: Weights) -> Iterator[str]:
    """Names of tensors that no network can compute with, and why."""
    for name, tensor in weights.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            yield f"{name} is {str(tensor.layout).removeprefix('torch.')} or quantized, not dense"
        elif tensor.is_meta:
            yield f"{name} has no values (a tensor on the device meta)"
        elif (held := tensor.untyped_storage().nbytes()) < tensor.nbytes:
            yield f"{name} is {tensor.nbytes:,} bytes of which the file holds {held:,}"
        elif not (tensor.is_floating_point() or tensor.dtype in COUNTERS):
            yield f"{name} is {str(tensor.dtype).removeprefix('torch.')}, not floating point"
        elif tensor.is_floating_point() and not name.endswith(MASK) and not bool(torch.isfinite(tensor).all()):
            yield f"{name} has values that are not finite (NaN or infinity)"


def _some(faults: list[str]) -> str:
    return "; ".join(faults[:SHOWN]) + ("; …" if len(faults) > SHOWN else "")


def load_weights(model: nn.Module, weights: Weights, path: Path, convert: Callable[[Any, Weights], Weights]) -> None:
    """Load converted weights into the model; names and shapes must match exactly."""
    model.load_state_dict(fit_weights(model, weights, path, convert))


def fit_weights(
    model: nn.Module, weights: Weights, path: Path, convert: Callable[[Any, Weights], Weights] = lambda _, found: found
) -> Weights:
    """Converted weights, whose names and shapes match those of the model, which may be without values (`meta`)."""
    try:
        weights = convert(model, dict(weights))
    except Exception as error:  # the check below explains what does not fit
        logger.debug("%s cannot be converted: %s", path, error)
    misfits = list(islice(_misfits(model.state_dict(), weights), SHOWN + 1))
    if misfits:
        raise WeightsError(f"{path} does not fit the model: {_some(misfits)}")
    return weights


def _misfits(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Iterator[str]:
    for name, tensor in wanted.items():
        if name not in found:
            yield f"{name} is missing"
        elif found[name].shape != tensor.shape:
            yield f"{name} is {list(found[name].shape)} where the model has {list(tensor.shape)}"
        elif found[name].is_floating_point() != tensor.is_floating_point():
            yield f"{name} is {found[name].dtype} where the model has {tensor.dtype}"
    yield from (f"the model has no {name}" for name in found if name not in wanted)


def _load_state(path: Path) -> Any:
    """Load a PyTorch state dict; the checksums in its zip file are checked here, since torch ignores them.

    PyTorch does not compress: an archive that holds more than its size was made to fill the memory.
    """
    if zipfile.is_zipfile(path):
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            inflated = sum(each.file_size for each in archive.infolist())
            if inflated > size:
                raise ValueError(f"it inflates from {size:,} to {inflated:,} bytes")
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged")
    return torch.load(path, "cpu", weights_only=True)


def _is_safetensors(path: Path) -> bool:
    """Recognise safetensors by the file's name, or by the JSON header that follows its length."""
    with path.open("rb") as file:
        start = file.read(9)
    return path.suffix == ".safetensors" or start[8:9] == b"{"


def _unwrap(found: Any, path: Path) -> dict[str, Tensor]:
    for name in NESTED:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not found or not all(isinstance(each, Tensor) for each in found.values()):
        raise WeightsError(f"{path} holds no state dict (a dictionary of names and tensors)")
    odd = [repr(name)[:80] for name in found if not isinstance(name, str)]
    if odd:
        raise WeightsError(f"{path} holds tensors whose names are not text: {_some(odd)}")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    weights: dict[str, Tensor] = found
    return weights


def _reason(error: Exception) -> str:
    """The first sentence of an error; torch goes on to advise switching off `weights_only`."""
    return str(error).strip().splitlines()[0].split(". ")[0] if str(error).strip() else type(error).__name__
