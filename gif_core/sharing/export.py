"""A trained backbone in the formats of others: ONNX, and the state dict that insightface reads."""

# Shapes: B images, C channels, H height, W width, D dimensions.

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gif_core.runtime import install_extra_command
from schemas.errors import GifError

IMAGES_CHW: Final = (3, 112, 112)
INPUT: Final = "images"
TOLERANCE: Final = 1e-4
BATCHES: Final = (1, 3)
"""Numbers of images with which an exported network is tried; it was traced with two."""


class ExportError(GifError, RuntimeError):
    """A model cannot be exported, or came out different."""


def export_torch(model: nn.Module, path: Path) -> None:
    """Write the state dict as `backbone.pth` files have it: names are insightface's, no `module.` before them."""
    with written_whole(path) as part:
        torch.save({name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}, part)


def export_onnx(model: nn.Module, path: Path) -> float | None:
    """Write the network from normalised images [B, 3, 112, 112] to features [B, D], for any number of images.

    It is compared with onnxruntime if that is installed: the largest difference of unit features is returned, and one
    above 1e-4 is refused.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ExportError(f"ONNX needs {' and '.join(missing)}: {install_extra_command('onnx')}")
    model = model.eval().cpu()
    with written_whole(path) as part:
        _trace(model, part)
        if find_spec("onnxruntime") is None:
            return None
        difference = largest_difference(model, OnnxNetwork(part))
        if not difference <= TOLERANCE:
            raise ExportError(f"onnxruntime gives features that differ by {difference:.2g}, above {TOLERANCE:g}")
    return difference


class OnnxNetwork(nn.Module):
    """The network of an ONNX file, run by onnxruntime on the CPU."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        import onnxruntime

        super().__init__()
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Features of normalised images."""
        features_BD: Tensor = torch.from_numpy(self.session.run(None, {INPUT: images_BCHW.numpy()})[0])
        return features_BD


def largest_difference(model: nn.Module, other: Callable[[Tensor], Tensor]) -> float:
    """Of any number in the unit features of some images, between a network and its export."""
    generator = torch.Generator().manual_seed(0)
    differences = []
    for size in BATCHES:
        images_BCHW = torch.rand(size, *IMAGES_CHW, generator=generator) * 2 - 1
        with torch.inference_mode():
            ours_BD, theirs_BD = model(images_BCHW), other(images_BCHW)
        differences.append((F.normalize(ours_BD, dim=1) - F.normalize(theirs_BD, dim=1)).abs().max())
    return float(torch.stack(differences).max())


def _trace(model: nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch, about itself
        torch.onnx.export(
            model,
            (torch.zeros(2, *IMAGES_CHW),),
            path,
            input_names=[INPUT],
            output_names=["features"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when it is done; whatever was there stays until then."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
