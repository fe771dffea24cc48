"""Open-set identification among the enrolled identities: metrics and threshold of each method."""

# Shapes: N images, E images of enrolled identities, U images of unknown identities, B either of them, D dimensions.

from collections.abc import Generator
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from gif_core.artifacts import Inputs
from gif_core.backbones import embed_images
from gif_core.evaluation.features import Features, collect_features
from gif_core.evaluation.results import SetResult, SystemResult
from gif_core.images import open_faces
from gif_core.recognition import (
    METHODS,
    RANKS,
    ChosenImages,
    Gallery,
    choose_enrolled,
    choose_unknown,
    measure_open_set,
    open_gallery,
    open_set_metrics,
)
from gif_core.runtime import Progress, pick_device
from gif_core.tokenization import check_identities
from gif_core.training import NoTokenHeadsError, open_backbone
from schemas.errors import GifError
from schemas.evaluation import IdentificationConfig
from schemas.files import CODES_FILE, IDENTITIES_FILE
from schemas.run import RunConfig

TITLE: Final = "identification"
PROTOCOL: Final = "enrolled-1"
"""Increase the number when the same features would give different metrics."""
NOTHING_HELD_OUT: Final = (
    "no identity was held out, so there is no threshold between known and unknown: set ingestion.held_out above 0"
)
OTHER_IDENTITIES: Final = "the model was trained on identities other than those of these faces"


class CannotIdentifyError(GifError):
    """Identification cannot be measured for this model and these faces; the message says why."""


def measure_identification(
    config: RunConfig, inputs: Inputs, given: IdentificationConfig
) -> Generator[Progress, None, SetResult]:
    """Metrics of each identification method, or the reason why there are none."""
    result = SetResult(TITLE, TITLE, PROTOCOL, {"flip": config.evaluation.flip, **given.model_dump()}, {})
    try:
        gallery = _open_gallery(config, inputs, given)
    except CannotIdentifyError as error:
        result.undefined = str(error)
        return result
    enrolled, unknown = _choose_images(config, inputs, given)
    result.flags = {**result.flags, "enrolled_images": enrolled.origin}
    result.counts = _count("enrolled", enrolled) | _count("unknown", unknown) | {"identities": len(gallery)}
    enrolled_ED, unknown_UD = yield from _embed(config, inputs, enrolled, unknown)
    for method in METHODS:
        known, unknown_found = (
            gallery.find(features_BD, max(RANKS), method) for features_BD in (enrolled_ED, unknown_UD)
        )
        metrics = measure_open_set(known, unknown_found, enrolled.identity_N, unknown.identity_N, fpir=given.fpir)
        result.systems[method] = SystemResult(open_set_metrics(metrics, given.fpir))
    return result


def headline(result: SetResult) -> dict[str, float]:
    """Headline metrics for the manifest; none if they are undefined."""
    return {
        f"{TITLE}/{method}/{name}": metric
        for method, metrics in result.metrics.items()
        for name, metric in metrics.items()
        if name.startswith(("rank_1", "fnir_"))
    }


def _open_gallery(config: RunConfig, inputs: Inputs, given: IdentificationConfig) -> Gallery:
    if not inputs["ingestion"].names("held_out-"):
        raise CannotIdentifyError(NOTHING_HELD_OUT)
    try:
        gallery = open_gallery(inputs, beam=given.beam, device=pick_device(config.execution.device))
    except NoTokenHeadsError as error:
        raise CannotIdentifyError(str(error)) from error
    codes, identities = inputs["tokenization"].path(CODES_FILE), inputs["ingestion"].path(IDENTITIES_FILE)
    try:
        check_identities(codes, identities)
    except GifError as error:
        raise CannotIdentifyError(OTHER_IDENTITIES) from error
    return gallery


def _choose_images(config: RunConfig, inputs: Inputs, given: IdentificationConfig) -> tuple[ChosenImages, ChosenImages]:
    faces, workers, seed = inputs["ingestion"], config.execution.workers, config.evaluation.seed
    identities = pq.read_table(faces.path(IDENTITIES_FILE))
    trained, held_out = (open_faces(faces, split, workers) for split in ("identities", "held_out"))
    enrolled = choose_enrolled(config.ingestion.sources, identities, trained, given.images, seed)
    return enrolled, choose_unknown(held_out, given.images, seed)


def _embed(
    config: RunConfig, inputs: Inputs, enrolled: ChosenImages, unknown: ChosenImages
) -> Generator[Progress, None, list[Features]]:
    device, batch, flip = pick_device(config.execution.device), config.execution.encode_batch, config.evaluation.flip
    model = open_backbone(inputs["training"], device)
    collected = []
    for name, chosen in (("enrolled", enrolled), ("unknown", unknown)):
        chunks = embed_images(model, chosen.images, chosen.rows_N, flip=flip, device=device, batch_size=batch)
        collected.append((yield from collect_features(chunks, name, len(chosen.rows_N))))
    return collected


def _count(name: str, chosen: ChosenImages) -> dict[str, int]:
    return {f"{name}_images": len(chosen.rows_N), f"{name}_identities": len(np.unique(chosen.identity_N))}
