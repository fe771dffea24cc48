"""Identification among the enrolled as a part of evaluation: its metrics, and the threshold of the unknown."""

import logging
from typing import Final

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.backbones import embed_images
from gif_core.evaluation import SetResult
from gif_core.images import open_faces
from gif_core.recognition import (
    METHODS,
    RANKS,
    ChosenImages,
    choose_enrolled,
    choose_unknown,
    measure_open_set,
    open_gallery,
    open_set_metrics,
)
from gif_core.runtime import pick_device
from gif_core.tokenization import check_identities
from gif_core.training import NoTokenHeadsError, open_backbone
from schemas.errors import GifError
from schemas.evaluation import IdentificationConfig
from schemas.run import RunConfig
from tasks.progress import collect_features
from tasks.stage import Inputs

logger = logging.getLogger(__name__)
TITLE: Final = "identification"
PROTOCOL: Final = "enrolled-1"
"""Raise its number when the same features would get other metrics."""
NOBODY_UNKNOWN: Final = (
    "nobody was held out, so there is no threshold between known and unknown: set ingestion.held_out above 0"
)

OTHER_PEOPLE: Final = "the model was trained on other identities than those of these faces"


def measure_identification(config: RunConfig, inputs: Inputs) -> SetResult | None:
    """Metrics of each way to find enrolled identities, or why there are none; None when they are not asked for."""
    given, device = config.evaluation.identification, pick_device(config.execution.device)
    if given is None:
        return None
    result = SetResult(TITLE, TITLE, PROTOCOL, {"flip": config.evaluation.flip, **given.model_dump()}, {})
    if not inputs["ingestion"].names("held_out-"):
        result.undefined = NOBODY_UNKNOWN
        return result
    try:
        gallery = open_gallery(inputs, beam=given.beam, device=device)
    except NoTokenHeadsError as error:
        result.undefined = str(error)
        return result
    try:
        check_identities(inputs["tokenization"].path("codes.parquet"), inputs["ingestion"].path("identities.parquet"))
    except GifError:
        result.undefined = OTHER_PEOPLE
        return result
    enrolled, unknown = _choose_images(config, inputs, given)
    result.flags = {**result.flags, "enrolled_images": enrolled.origin}
    result.counts = _count("enrolled", enrolled) | _count("unknown", unknown) | {"identities": len(gallery)}
    model = open_backbone(inputs["training"], device)
    enrolled_ED = _embed(config, model, enrolled, "enrolled", device)
    unknown_UD = _embed(config, model, unknown, "unknown", device)
    for method in METHODS:
        known, strange = (gallery.find(features_BD, max(RANKS), method) for features_BD in (enrolled_ED, unknown_UD))
        metrics = measure_open_set(known, strange, enrolled.person_N, unknown.person_N, fpir=given.fpir)
        result.systems[method] = open_set_metrics(metrics, given.fpir)
    return result


def headline(result: SetResult) -> dict[str, float | int | str]:
    """The metrics of the manifest."""
    if result.undefined:
        logger.warning("%s: %s", result.title, result.undefined)
        return {}
    return {
        f"{TITLE}/{method}/{name}": metric
        for method, metrics in result.systems.items()
        for name, metric in metrics.items()
        if name.startswith(("rank_1", "fnir_"))
    }


def _choose_images(config: RunConfig, inputs: Inputs, given: IdentificationConfig) -> tuple[ChosenImages, ChosenImages]:
    faces, workers, seed = inputs["ingestion"], config.execution.workers, config.evaluation.seed
    identities = pq.read_table(faces.path("identities.parquet"))
    trained, held_out = (open_faces(faces, split, workers) for split in ("identities", "held_out"))
    enrolled = choose_enrolled(config.ingestion.sources, identities, trained, given.images, seed)
    return enrolled, choose_unknown(held_out, given.images, seed)


def _embed(
    config: RunConfig, model: nn.Module, chosen: ChosenImages, name: str, device: torch.device
) -> NDArray[np.float32]:
    flip, batch = config.evaluation.flip, config.execution.encode_batch
    chunks = embed_images(model, chosen.images, chosen.rows_N, flip=flip, device=device, batch_size=batch)
    return collect_features(chunks, name, len(chosen.rows_N))


def _count(name: str, chosen: ChosenImages) -> dict[str, int]:
    return {f"{name}_images": len(chosen.rows_N), f"{name}_identities": len(np.unique(chosen.person_N))}
