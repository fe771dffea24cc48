"""Backbones: the networks F_θ that turn a face image into a feature, and safe loading of published weights.

base           Backbone, the base class; gradient checkpointing
factory        build_backbone: a network by its name in the settings
iresnet        IResNet-18 to 200, as in insightface
mobilefacenet  MobileFaceNet, as in insightface
vit            vision transformers, as in insightface and CVLFace
outputs        build_network: a backbone with the output that a head learns from
features       embedding images with a trained network; the sum with the mirrored image
weights        published weights of insightface and CVLFace
weight_files   files and URLs of weights that settings name
safe_loading   reading weights without running code in the file, and checking that they fit
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "USUAL",
    "Backbone",
    "Both",
    "WeightsError",
    "build_backbone",
    "build_network",
    "describe_file",
    "embed_batch",
    "embed_both",
    "embed_chunks",
    "embed_images",
    "find_misfit",
    "find_weights",
    "fit_weights",
    "load_weights",
    "open_foreign_backbone",
    "read_backbone",
    "read_weights",
    "unit_features",
]

if TYPE_CHECKING:
    from gif_core.backbones.base import Backbone
    from gif_core.backbones.factory import build_backbone
    from gif_core.backbones.features import Both, embed_batch, embed_both, embed_chunks, embed_images, unit_features
    from gif_core.backbones.outputs import build_network
    from gif_core.backbones.safe_loading import WeightsError, fit_weights, load_weights, read_weights
    from gif_core.backbones.weight_files import describe_file, find_weights
    from gif_core.backbones.weights import USUAL, find_misfit, open_foreign_backbone, read_backbone
else:
    __getattr__ = lazy_imports(__name__)
