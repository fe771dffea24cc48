"""What each stage costs: bytes, memory, seconds, and what limits it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from gif_core.benchmarking.tokenize import clustering_flops
from gif_core.estimation.case import FLOAT, PROCESS, Case, StageCost, make_cost
from gif_core.estimation.evaluation import cost_of_evaluation
from gif_core.estimation.machine import DISK, Machine
from gif_core.estimation.networks import size_of_backbone, size_of_encoder
from gif_core.reporting.head_cost import size_of_head
from gif_core.separation import SCORED_ROWS
from gif_core.tokenization import code_shape
from schemas.evaluation import PairFileSet
from schemas.separation import SeparationConfig
from schemas.stages import StageName

EXPECTED_EPOCHS: Final = 25
"""Epochs of separation with a target gap: 6, 22 and 65 were measured on three sets of vectors."""
DECODER: Final = 0.12e9
"""Bytes of a process that decodes."""
RECORD: Final = 200
"""Bytes of memory per image while ingestion lists it."""
MOMENTS: Final = {"sgd": 1, "adamw": 2}
RECOMPUTED: Final = 0.3
"""Share of activations that gradient checkpointing keeps."""
VECTOR_SHARE: Final = 0.25
"""Part of a GPU that code vectors may take by default."""


def cost_of_ingestion(case: Case) -> StageCost:
    """Read, check and copy every image that is not left out, or draw it; all of them are listed."""
    scale, rate = case.scale, case.machine.ingestion(case.scale.drawn)
    size = scale.stored_images * scale.image_bytes
    times = {"drawing" if scale.drawn else "cores": scale.stored_images / rate.per_second}
    times |= {} if scale.drawn else {"disk": 2 * size / DISK}
    memory = PROCESS / 2 + RECORD * scale.images
    return make_cost("ingestion", times, rate, 0.0 if scale.drawn else size, size, memory)


def cost_of_embedding(case: Case) -> StageCost:
    """Encode every image once."""
    machine, encoder = case.machine, size_of_encoder(case.config.embedding)
    rate = machine.encoding(case.config.embedding.encoder, case.config.embedding.model, encoder.flops)
    images = case.scale.trained_images
    times = {machine.name: images / (rate.per_second * machine.devices), "disk": case.faces / machine.disks}
    if machine.gpus:
        times["decoding"] = images / machine.decoding().per_second
    sums = 2 * case.scale.trained_identities * encoder.dimension * FLOAT
    device = case.on_device(2e9)
    return make_cost("embedding", times, rate, case.faces, sums * 1.5, PROCESS * machine.devices_of_one + 0.5e9, device)


def cost_of_separation(case: Case) -> StageCost:
    """Compare every identity with every other in every epoch (Eq. 6), and once to find its neighbours.

    One machine does this, with all its GPUs.
    """
    given, machine, count = case.config.separation, case.machine, case.scale.trained_identities
    epochs = expected_epochs(given)
    rate, work = machine.products(), 2.0 * count * count * case.dim
    pulled = given.pull > 0 and given.recipe == "per_vector"
    products = (2 * epochs + pulled) * work / (rate.per_second * machine.devices_of_one)
    rest = _rest_of_separation(machine, given, count, epochs) + 2 * _seconds_of_distances(case)
    times = {"all pairs": products + rest, "disk": 3 * case.vectors / DISK}
    shard = case.vectors / machine.devices_of_one
    return make_cost(
        "separation",
        times,
        rate,
        case.vectors,
        2 * case.vectors,
        PROCESS * machine.devices_of_one + (1 if machine.gpus else 2) * case.vectors,
        case.on_device(shard),
    )


def expected_epochs(given: SeparationConfig) -> int:
    """Epochs that compare all pairs: none if the closed form reaches the target by itself."""
    if given.recipe == "literal" or given.target_gap is None:
        return given.epochs
    if given.start_gap is not None and given.start_gap <= given.target_gap:
        return 0
    return min(given.epochs, EXPECTED_EPOCHS)


def cost_of_tokenization(case: Case) -> StageCost:
    """Cluster level by level on the cores, then align, write and measure codes."""
    count, rate = case.scale.trained_identities, case.machine.clustering()
    work = clustering_flops(count, case.dim, case.config.tokenization)
    times = {"cores": work / rate.per_second + count / case.machine.coding()}
    length = code_shape(count, case.config.tokenization).length
    writes = 2.0 * count * (FLOAT * length + 40)
    return make_cost("tokenization", times, rate, case.vectors, writes, PROCESS + 1.5 * case.vectors)


def cost_of_training(case: Case) -> StageCost:
    """Every image once per epoch, and validation after each."""
    given, machine, execution = case.config.training, case.machine, case.config.execution
    rate = machine.training(given.backbone, given.precision, given.head, case.dim)
    forward = machine.forward(given.backbone, given.precision, case.dim)
    images = given.epochs * case.scale.trained_images
    validation = given.epochs * _validated_images(case) * 2 / forward.per_second
    times = {
        machine.name: images / (rate.per_second * machine.devices) + validation,
        "decoding": images / machine.decoding().per_second if machine.gpus else 0.0,
        "disk": images * case.scale.image_bytes / machine.disks if machine.gpus else 0.0,
    }
    weights = FLOAT * size_of_backbone(given.backbone, case.dim).parameters * (1 + MOMENTS[given.optimizer])
    living = 2 * case.vectors if given.head == "gif" and given.code_vectors == "living" else 0.0
    memory = PROCESS * machine.devices_of_one + DECODER * min(execution.workers, machine.cores) + case.vectors
    kept = weights + living
    return make_cost(
        "training",
        times,
        rate,
        given.epochs * case.faces + case.vectors,
        execution.checkpoints_kept * kept + kept,
        memory,
        case.on_device(training_memory(case)),
    )


def training_memory(case: Case) -> float:
    """Bytes of one GPU: weights, gradients and moments, activations of its share of a batch, the head, code vectors."""
    given, machine, count = case.config.training, case.machine, case.scale.trained_identities
    weights = FLOAT * size_of_backbone(given.backbone, case.dim).parameters * (2.5 + MOMENTS[given.optimizer])
    share = given.batch_size / machine.devices / given.accumulation
    half = 1.0 if given.precision == "fp32" else 0.55
    recomputed = RECOMPUTED if case.config.execution.gradient_checkpointing else 1.0
    activations = share * size_of_backbone(given.backbone, case.dim).activations * half * recomputed
    shape = code_shape(count, case.config.tokenization)
    head = size_of_head(given, count, shape, case.dim).step_bytes(given)
    head = head if given.head == "gif" else head // machine.devices
    return weights + activations + head + (held_vectors(case) if vectors_fit(case) else 0.0)


def vectors_fit(case: Case) -> bool:
    """Whether training holds the code vectors of all identities on every GPU."""
    sheet, given = case.machine.sheet, case.config.execution.code_vector_memory
    if case.config.training.head != "gif" or sheet is None:
        return False
    return held_vectors(case) <= (VECTOR_SHARE * sheet.memory if given is None else given * 1e9)


def held_vectors(case: Case) -> float:
    """Bytes of the code vectors of all identities on a GPU; only constant ones may be of half precision."""
    living = case.config.training.code_vectors == "living"
    return case.vectors * (1.0 if living or case.config.execution.code_vector_precision == "fp32" else 0.5)


def cost_of_reporting(case: Case) -> StageCost:
    """A page of tables and plots, which all runs have, and the distances of what training made of code vectors."""
    times = {"plots": _measured_vectors(case) * _seconds_of_distances(case)}
    return make_cost("reporting", times, case.machine.starting("reporting"), 1e7, 5e6, PROCESS)


def cost_of(stage: StageName, case: Case) -> StageCost:
    """What a stage costs with its start."""
    cost = COSTS[stage](case)
    return replace(cost, seconds=1 / case.machine.starting(stage).per_second + cost.seconds)


COSTS: Final[Mapping[StageName, Callable[[Case], StageCost]]] = {
    "ingestion": cost_of_ingestion,
    "embedding": cost_of_embedding,
    "separation": cost_of_separation,
    "tokenization": cost_of_tokenization,
    "training": cost_of_training,
    "evaluation": cost_of_evaluation,
    "reporting": cost_of_reporting,
}


def _measured_vectors(case: Case) -> int:
    """How many matrices of training have their distances reported: rows of a head, or what became of code vectors."""
    given = case.config.training
    if given.head != "gif":
        return 1
    return (given.code_vectors == "living") + given.maps_code_vectors(case.scale.trained_identities)


def _seconds_of_distances(case: Case) -> float:
    """Seconds of the distances of all pairs of vectors, or of those of a sample."""
    return min(case.scale.trained_identities, SCORED_ROWS) ** 2 / case.machine.distances()


def _validated_images(case: Case) -> int:
    """Images that are validated after every epoch."""
    most = 4 * case.config.training.val_pairs
    files = [each for each in case.config.evaluation.sets if isinstance(each, PairFileSet)]
    return min(most, case.scale.held_out_images) + most * len(files)


def _rest_of_separation(machine: Machine, given: SeparationConfig, count: int, epochs: int) -> float:
    """Seconds of the closed form, and of pull and measuring, which grow with the identities."""
    found = machine.find("separate", machine.device)
    if found is None:
        return 0.0
    closed = given.start_gap is not None and given.recipe != "literal"
    each = found.phases["pull, measures"] * count / found.figures["vectors"] / machine.devices_of_one
    return closed * found.figures.get("closed_form_seconds", 0.0) + epochs * each
