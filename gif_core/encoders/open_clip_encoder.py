"""CLIP's image tower through open_clip, with the encoder's own preprocessing."""

# Shapes: B images in a batch, D dimensions.

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from gif_core.encoders.torchvision_operators import declare_missing_operators
from schemas.embedding import EmbeddingConfig
from schemas.errors import GifError

declare_missing_operators()
import open_clip  # noqa: E402

RANDOM = "random"


class WeightsUnavailableError(GifError, RuntimeError):
    """The pretrained weights cannot be had; the message says which and what to do."""


class OpenClipEncoder:
    """Any architecture of open_clip, or the project's own `tiny-clip`."""

    def __init__(self, config: EmbeddingConfig, device: torch.device, *, workers: int = 1) -> None:
        """Build the model and load its weights; never a silent fall-back to random ones."""
        open_clip.add_model_config(Path(__file__).with_name("tiny-clip.json"))
        check_weights(config)
        pretrained = None if config.pretrained == RANDOM else config.pretrained
        with torch.random.fork_rng(devices=[]), _no_warning_of(config):
            torch.default_generator.manual_seed(0)
            try:
                model, _, self.transform = open_clip.create_model_and_transforms(
                    config.model, pretrained=pretrained, require_pretrained=bool(pretrained), device=device
                )
            except (OSError, RuntimeError) as error:
                raise WeightsUnavailableError(_advice(config, error)) from error
        self.model, self.device, self.workers = model.eval(), device, workers

    @torch.inference_mode()
    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        """Unit vectors [B, D] of RGB faces."""
        with ThreadPoolExecutor(self.workers) as pool:
            pixels = list(pool.map(lambda image: self.transform(Image.fromarray(image)), images_BHWC))
        features: Tensor = self.model.encode_image(torch.stack(pixels).to(self.device), normalize=True)
        return features.float()


def check_weights(config: EmbeddingConfig) -> None:
    """Refuse an architecture or a tag that nobody knows, before anything is built."""
    known = open_clip.list_models()
    if config.model not in known:
        raise ValueError(f"embedding.model = {config.model!r}: open_clip has no such model; it has {', '.join(known)}")
    tags = open_clip.list_pretrained_tags_by_model(config.model)
    if config.pretrained not in [RANDOM, *tags] and not Path(config.pretrained).is_file():
        allowed = ", ".join([RANDOM, *tags])
        raise ValueError(
            f"embedding.pretrained = {config.pretrained!r} is neither a file nor a tag of {config.model}; "
            f"tags are: {allowed}"
        )


@contextmanager
def _no_warning_of(config: EmbeddingConfig) -> Iterator[None]:
    """open_clip warns of untrained weights; whoever asked for them by name knows."""
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.ERROR if config.pretrained == RANDOM else level)
    try:
        yield
    finally:
        root.setLevel(level)


def _advice(config: EmbeddingConfig, error: Exception) -> str:
    return (
        f"the weights {config.pretrained!r} of {config.model} cannot be loaded ({error}). Fetch the "
        "checkpoint on a machine with a network (open_clip.create_model_and_transforms downloads it), copy "
        "the file here, and set embedding.pretrained to its path"
    )
