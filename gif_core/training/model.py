"""A trained model as files: safetensors for the weights, JSON for what they are."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gif_core.artifacts import Artifact, Checkpoint
from gif_core.backbones import build_network
from gif_core.heads import TokenHeads
from gif_core.training.checkpoints import AVERAGE, ROWS, VECTORS, WEIGHT, is_kept, load_tensors, read_rows
from schemas.errors import GifError
from schemas.files import BACKBONE_FILE, CODE_VECTORS_FILE, HEAD_FILE, MODEL_FILE
from schemas.training import TrainingConfig

LIVING: Final = f"vectors.{WEIGHT}"
"""Name of the code vectors that learn in the state of the head."""


class NoTokenHeadsError(GifError, ValueError):
    """A model that cannot say what code a face has."""


def save_model(folder: Path, checkpoint: Checkpoint, description: dict[str, Any]) -> None:
    """Write backbone, head and description from the last checkpoint of a training; and code vectors that learned.

    A description whose `network` is "average" asks for the moving average of the backbone.
    """
    network = AVERAGE if description.get("network") == "average" else BACKBONE_FILE
    shutil.copyfile(checkpoint.path(network), folder / BACKBONE_FILE)
    head = _trained_head(checkpoint)
    if LIVING in head:
        save_file({VECTORS: head.pop(LIVING)}, folder / CODE_VECTORS_FILE)
    save_file(head, folder / HEAD_FILE)
    (folder / MODEL_FILE).write_text(json.dumps(description, indent=1, sort_keys=True))


def _trained_head(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What a head is when training has ended: without what the optimizer remembers of its rows, or was lent of them."""
    head = load_tensors(checkpoint, HEAD_FILE)
    shards = [checkpoint.path(name) for name in checkpoint.names(ROWS)]
    rows = read_rows(shards, 0, sys.maxsize, WEIGHT)
    head |= {name.removeprefix(HEAD_FILE): tensor for name, tensor in rows.items()}
    return {name: tensor for name, tensor in head.items() if is_kept(name)}


def load_backbone(weights: Path, description: Path) -> nn.Module:
    """The backbone as it was trained, ready to embed faces."""
    known = json.loads(description.read_text())
    settings = known.get("settings", {})
    model = build_network(
        known["backbone"], known["embedding_dim"], head=known.get("head", "gif"), groups=settings.get("groups", 32)
    )
    model.load_state_dict(load_file(weights))
    return model.eval()


def open_backbone(training: Artifact, device: torch.device) -> nn.Module:
    """The backbone of an artifact of training."""
    return load_backbone(training.path(BACKBONE_FILE), training.path(MODEL_FILE)).to(device)


def check_reads_codes(description: Path) -> None:
    """NoTokenHeadsError for a model that does not read codes: its head has none, or was not taught them."""
    check_has_token_heads(description)
    if not learned_codes(description):
        raise NoTokenHeadsError(
            "this model was trained with training.code_weight=0, which teaches its token heads nothing, so it cannot "
            "read codes: 'gif identify --by exhaustive' finds identities without them"
        )


def learned_codes(description: Path) -> bool:
    """Whether the loss of the codes had a part in training the token heads."""
    settings = json.loads(description.read_text())["settings"]
    return TrainingConfig.model_validate(settings).code_weight > 0


def check_has_token_heads(description: Path) -> None:
    """NoTokenHeadsError for a model of another head, which knows neither codes nor code vectors."""
    known = json.loads(description.read_text())
    if known.get("head") != "gif":
        raise NoTokenHeadsError(
            f"this model was trained with the head {known.get('head', 'unknown')}, which does not read codes: "
            "identification needs one of --set training.head=gif"
        )


def load_token_heads(weights: Path, description: Path) -> TokenHeads:
    """What reads a code from a feature, without the codes and code vectors that it was trained with."""
    known = json.loads(description.read_text())
    config, tensors = TrainingConfig.model_validate(known["settings"]), load_file(weights)
    heads = TokenHeads(
        known["length"],
        known["vocab_size"],
        known["embedding_dim"],
        scale=config.scale_of_head,
        hidden_layers=config.hidden_layers,
        map_width=tensors["map_in_DW"].shape[1] if "map_in_DW" in tensors else 0,
    )
    heads.load_state_dict(tensors)
    return heads.eval()
