"""Backbones: the networks F_θ that turn a face into a feature, and safe loading of published weights.

base           What all backbones can do: run their blocks, and give memory back between forward and backward
factory        A backbone by its name
features       Evaluation on identities never trained on: the features that verify and identify them
iresnet        IResNet in the layout of insightface's `recognition/arcface_torch`
mobilefacenet  MobileFaceNet in the layout of insightface's `mbf`, with the names of its state dict
safe_loading   Weights from files: read without running code from them, and refused when they are not the model's
vit            Vision transformers for faces in the layout of insightface's `recognition/arcface_torch`, and CVLFace'...
weights        Weights that others have trained, such as insightface's `backbone.pth` and CVLFace's `model.pt`
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "USUAL",
    "Backbone",
    "WeightsError",
    "build_backbone",
    "embed_both",
    "embed_images",
    "load_weights",
    "open_foreign_backbone",
    "read_weights",
]

if TYPE_CHECKING:
    from gif_core.backbones.base import Backbone
    from gif_core.backbones.factory import build_backbone
    from gif_core.backbones.features import embed_both, embed_images
    from gif_core.backbones.safe_loading import WeightsError, load_weights, read_weights
    from gif_core.backbones.weights import USUAL, open_foreign_backbone
else:
    __getattr__ = lazy_imports(__name__)
