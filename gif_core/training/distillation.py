"""Distillation: a small network also learns the features of a larger, frozen one, its teacher."""

# Shapes: B images, C channels, H height, W width, D dimensions.

from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gif_core.backbones import open_foreign_backbone
from schemas.errors import GifError
from schemas.training import TrainingTeacher

TEACHER_WEIGHT: Final = 10.0
"""Weight of the term: 1 - cos is at most 2, and losses of heads are around 10 at the beginning."""


def open_teacher(teacher: TrainingTeacher, dim: int, device: torch.device) -> nn.Module:
    """The teacher, frozen; GifError if its features have other dimensions than the student's."""
    model = open_foreign_backbone(teacher.backbone, Path(teacher.file))
    with torch.inference_mode():
        found = model.eval()(torch.zeros(1, 3, 112, 112)).shape[1]
    if found != dim:
        raise GifError(
            f"training.teacher: its features have {found} dimensions and those of this model {dim}: set "
            f"separation.dimension={found}"
        )
    return model.requires_grad_(False).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def distillation_loss(features_BD: Tensor, teacher: nn.Module, images_BCHW: Tensor) -> Tensor:
    """The mean of 1 - cos between the features of the student and of the teacher, in fp32."""
    with torch.no_grad():
        wanted_BD = teacher(images_BCHW).float()
    return (1 - F.cosine_similarity(features_BD.float(), wanted_BD)).mean()
