"""DINO, DINOv2 and all other image models of timm, without their classifiers."""

import sys
from typing import Any, Final

import torch
from torch import Tensor

from gif_core.backbones import WeightsError, load_weights, read_weights
from gif_core.embedding.encoders.base import ImageEncoder
from gif_core.embedding.encoders.downloads import hurried_downloads, reason_of
from gif_core.embedding.encoders.files import RANDOM, weights_file
from gif_core.embedding.encoders.names import check_name
from gif_core.embedding.encoders.preprocessing import Preprocessing
from gif_core.embedding.encoders.torchvision_operators import declare_missing_operators
from schemas.embedding import EmbeddingConfig

declare_missing_operators()
import timm  # noqa: E402

__all__ = ["TimmEncoder", "check_names", "timm"]


PATCHES: Final = "patch_embed.proj.weight"


class TimmEncoder(ImageEncoder):
    """The pooled features of a timm model."""

    def __init__(self, config: EmbeddingConfig, device: torch.device) -> None:
        """Build the model and load its weights; there is no silent fallback to random ones."""
        check_names(config)
        self.model = _build(config)
        path = weights_file(config)
        if path is not None:
            load_weights(self.model, read_weights(path), path, _converted)
        self.model.eval().requires_grad_(False).to(device)
        size = {} if config.image_size is None else {"input_size": (3, config.image_size, config.image_size)}
        wanted = timm.data.resolve_data_config(size, model=self.model)
        self.transform = timm.data.create_transform(**wanted, is_training=False)
        """The library's own preprocessing of one Pillow image; for comparison."""
        super().__init__(self.model, _preprocessing(wanted), device, config.precision)


def check_names(config: EmbeddingConfig) -> None:
    """Raise for a model or tag that timm does not know."""
    if not timm.is_model(config.model):
        check_name(config.model, timm.list_models(), "timm")
    tags = [RANDOM, *_tags(config.model)]
    if config.pretrained not in tags and weights_file(config) is None:
        raise ValueError(
            f"embedding.pretrained = {config.pretrained!r} is neither a file nor a tag of {config.model}; "
            f"tags are: {', '.join(tags)}"
        )


def _build(config: EmbeddingConfig) -> Any:
    """Build the model with the weights of a tag, or with reproducible untrained weights."""
    tagged = config.pretrained in _tags(config.model) and weights_file(config) is None
    name = f"{config.model}.{config.pretrained}" if tagged else config.model
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        if not tagged:
            return _create(name, config.image_size)
        try:
            with hurried_downloads():
                return _create(name, config.image_size, pretrained=True)
        except WeightsError:
            raise
        except Exception as error:
            raise WeightsError(_advice(config, error)) from error


def _create(name: str, image_size: int | None, **options: Any) -> Any:
    """Build a model without its classifier.

    Transformers take the size of their input as an argument. Convolutional networks have none: they accept any size,
    which the preprocessing gives them.
    """
    if image_size is not None:
        try:
            return timm.create_model(name, num_classes=0, img_size=image_size, **options)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
        except (AssertionError, ValueError, RuntimeError) as error:
            raise WeightsError(f"embedding.image_size = {image_size}: {name} cannot be built so ({error})") from error
    return timm.create_model(name, num_classes=0, **options)


def _converted(model: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with timm's names, converted by timm where it can, without the classifier.

    Positional embeddings may be resampled for another image size; another patch size is another model.
    """
    found, own = weights.get(PATCHES), model.state_dict().get(PATCHES)
    if found is not None and own is not None and found.ndim == own.ndim and found.shape != own.shape:
        return weights
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    weights = convert(weights, model) if convert else weights
    classifier = model.pretrained_cfg.get("classifier") or ()
    classifiers = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    left_out = tuple(f"{name}." for name in classifiers)
    wanted = model.state_dict().keys()
    return {name: each for name, each in weights.items() if name in wanted or not name.startswith(left_out)}


def _preprocessing(wanted: dict[str, Any]) -> Preprocessing:
    size = int(wanted["input_size"][-1])
    resized = int(size / wanted["crop_pct"])
    return Preprocessing(size, resized, tuple(wanted["mean"]), tuple(wanted["std"]), wanted["interpolation"])


def _tags(model: str) -> list[str]:
    return [name.removeprefix(f"{model}.") for name in timm.list_pretrained(f"{model}.*")]


def _advice(config: EmbeddingConfig, error: Exception) -> str:
    known = timm.get_pretrained_cfg(f"{config.model}.{config.pretrained}")
    hub = getattr(known, "hf_hub_id", None)
    repository = f"{hub}{config.model}.{config.pretrained}" if hub and str(hub).endswith("/") else hub
    url = f"https://huggingface.co/{repository} (model.safetensors)" if repository else getattr(known, "url", "")
    return (
        f"the weights {config.pretrained!r} of {config.model} cannot be downloaded ({reason_of(error)}). "
        f"On a machine with a network, fetch {url}; then set embedding.pretrained to the path of the file"
    )
