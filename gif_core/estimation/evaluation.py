"""What evaluation costs: features of every system, raw pixels, drawn images, and the search among the enrolled."""

import math
from typing import Final

from gif_core.estimation.case import PROCESS, Case, StageCost, make_cost
from gif_core.estimation.machine import CORE_FLOPS
from gif_core.estimation.networks import size_of_encoder
from gif_core.tokenization import code_shape
from schemas.benchmarks import BenchmarkResult
from schemas.evaluation import (
    EvaluationSet,
    HeldOutSet,
    IdentificationConfig,
    IjbSet,
    SyntheticIjbSet,
    SyntheticPairsSet,
    TinyFaceSet,
)

SET_IMAGES: Final = {"IJB-B": 227_630, "IJB-C": 469_375, "TinyFace": 161_599, "CFP-FP": 14_000}
BIN_IMAGES: Final = 12_000
"""Images of LFW, AgeDB-30, CALFW and CPLFW: 6,000 pairs."""
DRAWN_PER_IDENTITY: Final = {"synthetic_bin": 8, "synthetic_ijb": 12}
TEMPLATES: Final = (IjbSet, SyntheticIjbSet, TinyFaceSet)


def cost_of_evaluation(case: Case) -> StageCost:
    """Every set with every system, and identification."""
    given, machine = case.config.evaluation, case.machine
    forward = machine.forward(case.config.training.backbone, "fp32", case.dim)
    images, seconds = sum(images_of(each, case) for each in given.sets), sum(_of_set(each, case) for each in given.sets)
    if given.identification and case.config.training.head == "gif":
        images += sum(_probes(given.identification, case))
        seconds += _of_identification(given.identification, case)
    reads = images * case.scale.image_bytes + case.vectors
    times = {machine.name: seconds}
    return make_cost("evaluation", times, forward, reads, 2e7, PROCESS + case.vectors, case.on_device(2e9))


def images_of(given: EvaluationSet, case: Case) -> int:
    """Images of a set, by what is known of its kind without opening it."""
    if isinstance(given, HeldOutSet):
        return _distinct(2 * pairs_of(given, case), case.scale.held_out_images)
    if isinstance(given, SyntheticPairsSet | SyntheticIjbSet):
        return DRAWN_PER_IDENTITY[given.kind] * given.identities
    return SET_IMAGES.get(given.title, BIN_IMAGES)


def pairs_of(given: EvaluationSet, case: Case) -> int:
    """Pairs of a set, of both kinds; none of one with templates."""
    if isinstance(given, TEMPLATES):
        return 0
    if isinstance(given, HeldOutSet):
        return 2 * min(case.config.evaluation.pairs, _same_pairs(case))
    return 2 * given.pairs if isinstance(given, SyntheticPairsSet) else SET_IMAGES.get(given.title, BIN_IMAGES) // 2


def _same_pairs(case: Case) -> int:
    """Pairs of images of one held-out identity, if all have equally many."""
    images, each = case.scale.held_out_images, case.scale.images / case.scale.identities
    return round(images * max(each - 1, 0) / 2)


def _distinct(drawn: int, images: int) -> int:
    """How many different ones are expected among images that are drawn at random."""
    return round(images * -math.expm1(-drawn / images)) if images else 0


def _of_set(given: EvaluationSet, case: Case) -> float:
    """Seconds of a set: it is drawn if it is synthetic, and every system has its own features."""
    config, machine, count = case.config.evaluation, case.machine, images_of(given, case)
    passes = count * (2 if isinstance(given, TEMPLATES) or config.flip else 1)
    seconds = count / machine.drawing() if "synthetic" in given.kind else 0.0
    if "raw_pixels" in config.systems:
        seconds += pairs_of(given, case) / machine.comparing()
    if "encoder" in config.systems:
        encoder = case.config.embedding
        flops = size_of_encoder(encoder).flops
        seconds += passes / machine.encoding_alone(encoder.encoder, encoder.model, flops).per_second
    return seconds + (_of_features(passes, case) if "model" in config.systems else 0.0)


def _of_features(passes: int, case: Case) -> float:
    return passes / case.machine.forward(case.config.training.backbone, "fp32", case.dim).per_second


def _probes(given: IdentificationConfig, case: Case) -> tuple[int, int]:
    """Images of enrolled and of unknown identities; without any of the latter nothing is searched."""
    unknown = min(given.images, case.scale.held_out_images)
    return (given.images if unknown else 0), unknown


def _of_identification(given: IdentificationConfig, case: Case) -> float:
    """Seconds of drawing new images of the enrolled, of all features, and of three searches of each."""
    enrolled, unknown = _probes(given, case)
    passes = (enrolled + unknown) * (2 if case.config.evaluation.flip else 1)
    drawn = enrolled / case.machine.drawing() if case.scale.drawn else 0.0
    return drawn + _of_features(passes, case) + (enrolled + unknown) * _of_search(given, case)


def _of_search(given: IdentificationConfig, case: Case) -> float:
    """Seconds of a probe: beams grow with the code's length and values, an exhaustive search with the identities."""
    found = case.machine.find("evaluate", case.machine.device)
    size = float(case.scale.trained_identities * case.dim)
    if found is None:
        return 2 * size / (case.machine.cores * CORE_FLOPS)
    sizes = {name: float(found.settings[name]) for name in ("identities", "dimension", "beam", "length", "values")}
    exhaustive = size / (sizes["identities"] * sizes["dimension"])
    shape = code_shape(case.scale.trained_identities, case.config.tokenization)
    work = given.beam * shape.length * shape.vocab_size
    beams = work / (sizes["beam"] * sizes["length"] * sizes["values"])
    return _seconds_of_beams(found) * beams + found.phases["search exhaustive"] * exhaustive


def _seconds_of_beams(found: BenchmarkResult) -> float:
    return found.phases["search codes"] + found.phases["search reranked"]
