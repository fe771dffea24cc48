"""Per-epoch validation: verification of identities that the network is not trained on."""

# Shapes: N images, P pairs.

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.backbones import embed_images
from gif_core.images import Faces
from gif_core.protocols import Pairs, check_pairs, draw_pairs, pair_distances, verify_distances
from gif_core.protocols.sets import PairSet, open_pairs
from schemas.errors import GifError
from schemas.training import TrainingJob

logger = logging.getLogger(__name__)
Validation = Callable[[nn.Module], dict[str, float]]
FOLDS: Final = 10
METRIC: Final = "val_accuracy"
"""Of held-out identities; of another set its name follows after a stroke."""


def prepare_validation(job: TrainingJob, device: torch.device) -> Validation | None:
    """Validation on pairs of held-out identities and of evaluation's pair sets; None when there are none."""
    sets = dict(_open_sets(job)) if job.config.val_pairs else {}
    return partial(_verify, sets, device) if sets else None


def _open_sets(job: TrainingJob) -> Iterator[tuple[str, PairSet]]:
    """Sets by the name of their metric; what cannot be verified is no reason not to train."""
    openers = {f"{METRIC}/{given.title}": partial(open_pairs, given) for given in job.val_sets}
    if job.held_out:
        openers = {METRIC: partial(_draw_held_out, job), **openers}
    for name, open_set in openers.items():
        try:
            found = open_set()
            chosen = PairSet(found.images, thin(found.pairs, job.config.val_pairs))
            check_pairs(chosen.pairs.same, FOLDS)
        except (GifError, OSError) as error:
            _warn(name, error)
        else:
            yield name, chosen


def _warn(name: str, error: Exception) -> None:
    logger.warning("no %s during training: %s (training.val_pairs: 0 asks for none)", name, error)


def _draw_held_out(job: TrainingJob) -> PairSet:
    faces = Faces([Path(path) for path in job.held_out], workers=job.workers)
    return PairSet(faces, draw_pairs(faces.labels_N, pairs=job.config.val_pairs, seed=job.seed, folds=FOLDS))


def thin(pairs: Pairs, most: int) -> Pairs:
    """At most so many pairs of each kind, spread evenly and in their order, which is that of the folds."""
    kinds = [np.flatnonzero(pairs.same == same) for same in (True, False)]
    chosen_P = np.sort(np.concatenate([_spread(rows_P, most) for rows_P in kinds]))
    return Pairs(pairs.left[chosen_P], pairs.right[chosen_P], pairs.same[chosen_P])


def _spread(rows_P: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return rows_P[np.arange(min(most, len(rows_P))) * len(rows_P) // max(min(most, len(rows_P)), 1)]


def _verify(sets: dict[str, PairSet], device: torch.device, model: nn.Module) -> dict[str, float]:
    """The accuracy on every set whose images can be read.

    None of features that are not finite, about which the training has more to say.
    """
    found: dict[str, float] = {}
    for name, each in sets.items():
        try:
            accuracy = _accuracy(each, device, model)
        except (GifError, OSError) as error:
            _warn(name, error)
        else:
            found |= {} if accuracy is None else {name: accuracy}
    return found


def _accuracy(given: PairSet, device: torch.device, model: nn.Module) -> float | None:
    rows, left, right = given.pairs.needed_images()
    features = np.concatenate(list(embed_images(model, given.images, rows, flip=True, device=device)))
    if not np.isfinite(features).all():
        return None
    return verify_distances(pair_distances(features, left, right), given.pairs.same, FOLDS).accuracy
