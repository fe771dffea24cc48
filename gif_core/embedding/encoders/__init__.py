"""Encoders: which pretrained network turns a face into a vector? One protocol, one file per library.

base                   `Encoder` protocol and `ImageEncoder`: a network, its preprocessing and its precision
factory                `build_encoder`: the encoder that a configuration names; `open_encoder`: once per process
open_clip_encoder      CLIP and others through open_clip, including the project's own `tiny-clip`
timm_encoder           DINO, DINOv2 and all other image models of timm
backbone_encoder       A face recognition backbone as the encoder: trained here, by insightface or by CVLFace
tiny_clip              Trains `tiny-clip`, a small CLIP on synthetic faces and captions
scene                  Gives its vectors what CLIP's are full of: how a picture was taken
preprocessing          Resizes, crops and normalises a batch on the device
precision              Precision of inference: fp32 on a CPU, half precision on a GPU
files                  Local files of weights; imports nothing heavy, because keys need it
torchvision_operators  Makes open_clip importable where torchvision's compiled operators cannot be loaded
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "TEST_SEED",
    "ImageEncoder",
    "OpenClipEncoder",
    "Recipe",
    "build_encoder",
    "check_encoder",
    "describe_weights",
    "draw_examples",
    "given_file",
    "new_model",
    "open_encoder",
    "save_model",
    "train_tiny_clip",
    "weights_file",
    "with_whole_path",
    "zero_shot",
]

if TYPE_CHECKING:
    from gif_core.embedding.encoders.base import ImageEncoder
    from gif_core.embedding.encoders.factory import build_encoder, open_encoder
    from gif_core.embedding.encoders.files import describe_weights, given_file, weights_file, with_whole_path
    from gif_core.embedding.encoders.names import check_encoder
    from gif_core.embedding.encoders.open_clip_encoder import OpenClipEncoder
    from gif_core.embedding.encoders.tiny_clip import (
        TEST_SEED,
        Recipe,
        draw_examples,
        new_model,
        save_model,
        train_tiny_clip,
        zero_shot,
    )
else:
    __getattr__ = lazy_imports(__name__)
