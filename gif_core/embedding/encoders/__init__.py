"""Encoders: pretrained networks such as CLIP and DINO. One protocol, and one file for each library.

backbone_encoder       A face recognition network as the encoder: one trained here before, or insightface's or CVLFace's
base                   What an encoder is: a network, its preprocessing and the precision it computes in
factory                The encoder that a configuration names
files                  Where weights lie. Nothing heavy is imported here: keys of artifacts need it too
open_clip_encoder      CLIP through open_clip: any of its architectures, or the project's own `tiny-clip`
precision              The precision of a network that only looks: full on a CPU, half on a GPU
preprocessing          Preprocessing of a whole batch on the device: resize, crop and normalise as the encoder asks
timm_encoder           DINO, DINOv2 and every other image model of timm, without its classifier
tiny_clip              `tiny-clip`: a small CLIP that the project trains itself, on synthetic faces and captions of t...
torchvision_operators  Let open_clip be imported where torchvision's compiled operators cannot be loaded
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "ImageEncoder",
    "OpenClipEncoder",
    "Recipe",
    "build_encoder",
    "draw_examples",
    "new_model",
    "save_model",
    "train_tiny_clip",
    "weights_file",
    "zero_shot",
]

if TYPE_CHECKING:
    from gif_core.embedding.encoders.base import ImageEncoder
    from gif_core.embedding.encoders.factory import build_encoder
    from gif_core.embedding.encoders.files import weights_file
    from gif_core.embedding.encoders.open_clip_encoder import OpenClipEncoder
    from gif_core.embedding.encoders.tiny_clip import (
        Recipe,
        draw_examples,
        new_model,
        save_model,
        train_tiny_clip,
        zero_shot,
    )
else:
    __getattr__ = lazy_imports(__name__)
