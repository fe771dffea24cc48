"""Separation of what faces are classified by (the paper's Figure 4): softmax centroids, and code vectors H.

Code vectors are measured as separation left them and, where training moves them, as it left them: rows that learned,
and rows where the learned map puts them.
"""

# Shapes: M rows, S rows measured, D dimensions.

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open
from torch import Tensor

from gif_core.artifacts import Artifact
from gif_core.heads import apply_shared_map
from gif_core.runtime import map_tensor
from gif_core.separation import SCORED_ROWS, SeparationScores, open_code_vectors, sample, separation_scores
from gif_core.training.checkpoints import VECTORS, WEIGHT
from schemas.files import CODE_VECTORS_FILE, HEAD_FILE

MAP: Final = ("map_in_DW", "map_out_WD")
"""Names of the learned map's parameters in the file of the head."""
ROWS_OF: Final = {"virtual_fc": "Anchors of virtual_fc, several identities each"}


@dataclass(frozen=True)
class MeasuredCentroids:
    """Cosine distances of all pairs of some vectors."""

    name: str
    vectors: int
    """How many there are; distances are those of a sample of them if there are more than `SCORED_ROWS`."""
    scores: SeparationScores


def measure_centroids(
    separation: Artifact, training: Artifact | None = None, device: torch.device | None = None
) -> list[MeasuredCentroids]:
    """Identity vectors, H, and what a training made of it or learned in its place."""
    return [*_separated(separation), *(_trained(separation, training, device) if training else ())]


def _separated(separation: Artifact) -> Iterator[MeasuredCentroids]:
    """Distances that separation measured when it ended."""
    metrics, count = separation.manifest.metrics, len(open_code_vectors(separation, scattered=True))
    for name, ending in (("Identity vectors", "_before"), ("Code vectors H", "")):
        values = [metrics.get(f"{which}_distance{ending}") for which in ("min", "mean", "max")]
        if None not in values:
            yield MeasuredCentroids(name, count, SeparationScores(*map(float, values)))  # type: ignore[arg-type]


def _trained(separation: Artifact, training: Artifact, device: torch.device | None) -> Iterator[MeasuredCentroids]:
    path = training.path(HEAD_FILE)
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        learned_map = [file.get_tensor(name).to(device) for name in MAP if name in names]
    if WEIGHT in names:
        head = str(training.manifest.settings.get("head", "the head"))
        yield from _measure(ROWS_OF.get(head, f"Centroids of {head}"), path, WEIGHT, [], device)
    has_learned = CODE_VECTORS_FILE in training.names()
    owner = training if has_learned else separation
    vectors = owner.path(CODE_VECTORS_FILE)
    if has_learned:
        yield from _measure("H after training", vectors, VECTORS, [], device)
    if learned_map:
        name = "H after training, where the learned map puts it" if has_learned else "H where the learned map puts it"
        yield from _measure(name, vectors, VECTORS, learned_map, device)


def _measure(
    name: str, path: Path, tensor: str, learned_map: list[Tensor], device: torch.device | None
) -> Iterator[MeasuredCentroids]:
    """Measure rows of a file, mapped if there is a map; nothing for fewer than two."""
    rows_MD = map_tensor(path, tensor, scattered=True)
    if len(rows_MD) < 2:
        return
    chosen_SD = torch.from_numpy(rows_MD[sample(len(rows_MD), SCORED_ROWS, [len(rows_MD)]).numpy()]).to(device)
    if learned_map:
        chosen_SD = apply_shared_map(chosen_SD, *learned_map)
    yield MeasuredCentroids(name, len(rows_MD), separation_scores(chosen_SD))
