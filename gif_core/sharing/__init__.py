"""Sharing: a trained model for other programs and other people, and models of others.

export        A backbone as ONNX, or as the state dict that insightface reads
quantization  ONNX with eight bits, calibrated and measured on faces of the run
folder        A model as a folder for the Hugging Face hub: safetensors, config.json, scores, model card
card          The model card: data, scores with protocol and flags, thresholds, limits, lineage
pulling       Such a folder as a model of this store, its digests checked
hub           Uploading such a folder to the hub, and downloading one
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "ExportError",
    "HubError",
    "Int8Export",
    "PullError",
    "Pulled",
    "check_can_push",
    "download_folder",
    "export_folder",
    "export_int8",
    "export_onnx",
    "export_torch",
    "open_own_faces",
    "origin_of",
    "pull_folder",
    "push_folder",
    "tag_for",
]

if TYPE_CHECKING:
    from gif_core.sharing.export import ExportError, export_onnx, export_torch
    from gif_core.sharing.folder import export_folder
    from gif_core.sharing.hub import HubError, check_can_push, download_folder, push_folder
    from gif_core.sharing.pulling import Pulled, PullError, origin_of, pull_folder, tag_for
    from gif_core.sharing.quantization import Int8Export, export_int8, open_own_faces
else:
    __getattr__ = lazy_imports(__name__)
