"""CLIP and others through open_clip: any of its architectures, or the project's own `tiny-clip`."""

# Shapes: B texts in a batch, D dimensions.

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gif_core.backbones import WeightsError, load_weights, read_weights
from gif_core.embedding.encoders.base import ImageEncoder
from gif_core.embedding.encoders.downloads import hurried_downloads, reason_of
from gif_core.embedding.encoders.files import RANDOM, SHIPPED, weights_file
from gif_core.embedding.encoders.names import check_name
from gif_core.embedding.encoders.preprocessing import Preprocessing
from gif_core.embedding.encoders.torchvision_operators import declare_missing_operators
from schemas.embedding import EmbeddingConfig

declare_missing_operators()
import open_clip  # noqa: E402
from open_clip.convert import convert_state_dict  # noqa: E402
from open_clip.factory import download_pretrained, resize_pos_embed, resize_text_pos_embed  # noqa: E402
from open_clip.model import convert_to_custom_text_state_dict  # noqa: E402
from open_clip.transform import PreprocessCfg, image_transform_v2  # noqa: E402

__all__ = ["OpenClipEncoder", "build_model", "check_names", "open_clip", "quiet"]

TINY_CLIP: Final = Path(__file__).with_name("tiny-clip.json")
open_clip.add_model_config(TINY_CLIP)


class OpenClipEncoder(ImageEncoder):
    """The image tower of an open_clip model; its text tower is used for zero-shot tests."""

    def __init__(self, config: EmbeddingConfig, device: torch.device) -> None:
        """Build the model and load its weights; there is no silent fallback to random ones."""
        check_names(config)
        self.model = build_model(config)
        path = _find_weights(config)
        if path is not None:
            load_weights(self.model, read_weights(path), path, _converted)
        self.model.eval().requires_grad_(False).to(device)
        wanted = PreprocessCfg(**open_clip.get_model_preprocess_cfg(self.model))
        self.transform = image_transform_v2(wanted, is_train=False)
        """The library's own preprocessing of one Pillow image; for comparison."""
        self.name = config.model
        super().__init__(self.model.encode_image, _preprocessing(wanted), device, config.precision)

    @cached_property
    def tokenizer(self) -> Any:
        """The text tokenizer; that of some models has to be downloaded."""
        try:
            return open_clip.get_tokenizer(self.name)
        except Exception as error:
            raise WeightsError(f"the tokenizer of {self.name} cannot be loaded ({error})") from error

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors [B, D] of sentences."""
        tokens = self.tokenizer(list(texts))
        features_BD: Tensor = self.model.encode_text(tokens.to(self.device), normalize=True)
        return features_BD.float()


def build_model(config: EmbeddingConfig) -> Any:
    """Build the architecture with reproducible untrained weights."""
    gelu = _pretrained_tag(config).get("quick_gelu", False)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.default_generator.manual_seed(0)
        model = open_clip.create_model(
            config.model,
            load_weights=False,
            pretrained_text=False,
            force_quick_gelu=gelu,
            force_image_size=config.image_size,
        )
    tag = {name: value for name, value in _pretrained_tag(config).items() if name in ("mean", "std", "interpolation")}
    open_clip.set_model_preprocess_cfg(model, open_clip.get_model_preprocess_cfg(model) | tag)
    return model


def check_names(config: EmbeddingConfig) -> None:
    """Raise for an unknown architecture or tag, before anything is built."""
    check_name(config.model, open_clip.list_models(), "open_clip")
    shipped = [tag for model, tag in SHIPPED if model == config.model]
    tags = [RANDOM, *shipped, *open_clip.list_pretrained_tags_by_model(config.model)]
    if config.pretrained not in tags and weights_file(config) is None:
        raise ValueError(
            f"embedding.pretrained = {config.pretrained!r} is neither a file nor a tag of {config.model}; "
            f"tags are: {', '.join(tags)}"
        )


def _find_weights(config: EmbeddingConfig) -> Path | None:
    """Return the file of weights, downloaded if necessary; None for random weights."""
    if config.pretrained == RANDOM:
        return None
    local = weights_file(config)
    if local is not None:
        return local
    try:
        tag = _pretrained_tag(config)
        with quiet(), hurried_downloads("" if tag.get("hf_hub") else str(tag.get("url", ""))):
            return Path(download_pretrained(tag))
    except Exception as error:  # the remedy is the same for any failure of the download
        raise WeightsError(_advice(config, error)) from error


def _pretrained_tag(config: EmbeddingConfig) -> dict[str, Any]:
    tag: dict[str, Any] = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    return {} if config.pretrained == RANDOM or weights_file(config) else tag


def _converted(model: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with open_clip's names, and positional embeddings resized to the model's inputs."""
    weights = convert_state_dict(model, weights)
    if "positional_embedding" in weights and not hasattr(model, "positional_embedding"):
        weights = convert_to_custom_text_state_dict(weights)
    if "logit_scale" in weights:
        weights["logit_scale"] = weights["logit_scale"].reshape(model.logit_scale.shape)
    weights.pop("text.transformer.embeddings.position_ids", None)
    resize_pos_embed(weights, model)
    resize_text_pos_embed(weights, model)
    return weights


def _preprocessing(wanted: Any) -> Preprocessing:
    size = wanted.size if isinstance(wanted.size, int) else wanted.size[0]
    return Preprocessing(size, size, tuple(wanted.mean), tuple(wanted.std), wanted.interpolation)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence open_clip, which logs through the root logger and warns of untrained weights even if requested."""
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.setLevel(level)


def _advice(config: EmbeddingConfig, error: Exception) -> str:
    tag = _pretrained_tag(config)
    repository = str(tag.get("hf_hub", "")).strip("/")
    url = f"https://huggingface.co/{repository} (open_clip_model.safetensors)" if repository else tag.get("url", "")
    model = f"{config.model}-quickgelu" if tag.get("quick_gelu") and "quickgelu" not in config.model else config.model
    return (
        f"the weights {config.pretrained!r} of {config.model} cannot be downloaded ({reason_of(error)}). "
        f"On a machine with a network, fetch {url}; then set embedding.pretrained to the path of the file "
        f"and embedding.model to {model}"
    )
