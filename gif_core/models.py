"""A trained model as files: safetensors for the weights, JSON for what they are."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from gif_core.backbones.building import build_backbone


def save_model(folder: Path, model: nn.Module, head: nn.Module, description: dict[str, Any]) -> None:
    """Write `backbone.safetensors`, `head.safetensors` and `model.json`."""
    for name, module in (("backbone", model), ("head", head)):
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in module.state_dict().items()}
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "model.json").write_text(json.dumps(description, indent=1, sort_keys=True))


def load_backbone(weights: Path, description: Path) -> nn.Module:
    """The backbone as it was trained, ready to embed faces."""
    known = json.loads(description.read_text())
    model = build_backbone(known["backbone"], known["embedding_dim"])
    model.load_state_dict(load_file(weights))
    return model.eval()
