"""Cost of heads, training speed and cost of separation as the paper's figures: measured, and computed beyond."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from gif_core.paper.head_steps import GIVES_BACK, HEADS, HeadPoint, Measured, compute_bytes, measure_apart
from gif_core.paper.results import Chart, Grid
from gif_core.paper.separation_steps import SeparationPoint
from gif_core.paper.separation_steps import measure_apart as measure_separation
from gif_core.reporting import size_of_head
from gif_core.runtime import size as write_size
from gif_core.tokenization import code_shape
from schemas.errors import GifError
from schemas.experiments import Cost, Experiment, Scale
from schemas.tokenization import TokenizationConfig

Shown = tuple[list[Grid], list[Chart], list[str]]
Report = Callable[[str], None]
GPUS, GPU_BYTES = 8, 80e9
"""The paper's machine."""
IN_ALL: Final = 4096
"""Images of a step on it."""
MILLION: Final = 1_000_000
SECONDS_OF_A_STEP: Final = "seconds of a step (of the processor, on a CPU)"
MULTIPLICATIONS: Final = "multiplications an image"
COMPUTED: Final = (1, 2, 4, 8, 16, 32, 64)
"""Millions of identities at which costs are computed."""


def show_cost(experiment: Experiment, scale: Scale, *, device: str, memory: int, report: Report) -> Shown:
    """Measure what fits into `memory` bytes, saying so with `report`, and compute the rest."""
    assert experiment.cost is not None
    show = {"head_cost": _show_heads, "training_speed": _show_speed, "separation_cost": _show_separation}
    return show[experiment.kind](experiment.cost, scale, device, memory, report)


def _show_heads(cost: Cost, scale: Scale, device: str, memory: int, report: Report) -> Shown:
    points = [
        HeadPoint(head, identities, cost.batch_size, cost.dimensions, device=device)
        for identities in cost.sizes(scale)
        for head in cost.heads
    ]
    fitting, lost = [point for point in points if compute_bytes(point) <= memory], list[str]()
    found = dict(_measure_heads(fitting, report, lost))
    rows = tuple(_head_row(point, found.get(point)) for point in points)
    columns = ("head", "identities", "ms of a step", "ms of processor", "memory", "memory computed", MULTIPLICATIONS)
    grid = Grid(f"One step of the head, {cost.batch_size} images, {cost.dimensions} dimensions", columns, rows)
    remarks = ["Heads alone: without the network's own time and memory, which do not grow with the identities."]
    if len(fitting) < len(points):
        remarks.append("Where no time is given, the head does not fit this machine's memory.")
    remarks += lost
    if cost.shows == "bytes":
        return [grid], [_draw_measured(found, cost), _draw_gpus(cost)], remarks
    return [grid], [_draw_measured(found, cost), _draw_multiplications(cost)], remarks


def _try(measure: Callable[[], Measured], lost: list[str]) -> Measured | None:
    """A measurement; where it fails, its error joins the `lost` and the other points go on."""
    try:
        return measure()
    except GifError as error:
        lost.append(f"{error}.")
        return None


def _measure_heads(points: list[HeadPoint], report: Report, lost: list[str]) -> Iterator[tuple[HeadPoint, Measured]]:
    for point in points:
        timed = _try(partial(measure_apart, point), lost)
        if timed is None:
            continue
        again = partial(measure_apart, point, environment=GIVES_BACK)
        held = _try(again, lost) if point.device == "cpu" else timed
        if held is None:
            continue
        report(f"{HEADS[point.head].label}, {point.identities:,} identities: {1e3 * timed.seconds:.0f} ms")
        yield point, Measured(timed.seconds, timed.processor_seconds, held.bytes)


def _head_row(point: HeadPoint, measured: Measured | None) -> tuple[str, ...]:
    taken: tuple[str, ...] = ("–", "–", "–")
    if measured:
        times = (f"{1e3 * each:,.1f}" for each in (measured.seconds, measured.processor_seconds))
        taken = (*times, write_size(measured.bytes))
    computed = (write_size(compute_bytes(point)), f"{count_multiplications(point):,}")
    return (HEADS[point.head].label, f"{point.identities:,}", *taken, *computed)


def count_multiplications(point: HeadPoint) -> int:
    """Multiplications of the forward pass of a head for one image."""
    kind = HEADS[point.head]
    shape = code_shape(point.identities, TokenizationConfig(length=point.length))
    size = size_of_head(kind.config, point.identities, shape, point.dimensions)
    if kind.has_codes:
        return size.parameters + (size.logits - shape.length * shape.vocab_size) * point.dimensions
    return size.logits * point.dimensions * (2 if point.head == "f2c" else 1)


def _draw_measured(found: Mapping[HeadPoint, Measured], cost: Cost) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for point, measured in found.items():
        value = measured.bytes / 2**30 if cost.shows == "bytes" else _undisturbed(point.device, measured)
        series.setdefault(HEADS[point.head].label, []).append((point.identities, value))
    y = "GiB" if cost.shows == "bytes" else SECONDS_OF_A_STEP
    return Chart("Measured here", "identities", y, series, log="xy")


def _undisturbed(device: str, measured: Measured) -> float:
    """Seconds of a step; on a CPU those of the processor, which other programs disturb less."""
    return measured.processor_seconds if device == "cpu" else measured.seconds


def _draw_multiplications(cost: Cost) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for head in cost.heads:
        points = [HeadPoint(head, number * MILLION, dimensions=cost.dimensions) for number in COMPUTED]
        series[HEADS[head].label] = [(point.identities, count_multiplications(point)) for point in points]
    return Chart("Computed", "identities", MULTIPLICATIONS, series, log="xy")


def _draw_gpus(cost: Cost) -> Chart:
    """Memory of the head on each of the paper's GPUs: rows are divided among them, the images of all are compared."""
    series: dict[str, list[tuple[float, float]]] = {}
    for head in cost.heads:
        share = 1 if HEADS[head].has_codes else GPUS
        points = [
            (number * MILLION, HeadPoint(head, number * MILLION // share, IN_ALL, cost.dimensions))
            for number in COMPUTED
        ]
        series[HEADS[head].label] = [(identities, compute_bytes(point) / 1e9) for identities, point in points]
    title = f"Computed for each of {GPUS} GPUs, {IN_ALL} images in all, head alone"
    return Chart(title, "identities", "GB", series, levels={"80 GB": GPU_BYTES / 1e9}, log="xy")


def _show_speed(cost: Cost, scale: Scale, device: str, memory: int, report: Report) -> Shown:
    full = scale == "full"
    backbone, batch = (cost.backbone, cost.batch_size) if full else (cost.demo_backbone, cost.demo_batch_size)
    (identities,) = cost.sizes(scale)
    unit = "images per second of the processor" if device == "cpu" else "images per second"
    points = [
        HeadPoint(head, identities, batch, cost.dimensions, backbone=backbone, device=device) for head in cost.heads
    ]
    fitting, lost = [point for point in points if compute_bytes(point) <= memory], list[str]()
    speeds: dict[str, tuple[float, float, int]] = {}
    for point in fitting:
        if measured := _try(partial(measure_apart, point), lost):
            used, label = batch / _undisturbed(device, measured), HEADS[point.head].label
            speeds[label] = (used, batch / measured.seconds, measured.bytes)
            report(f"{label}: {used:.1f} {unit}")
    first = next(iter(speeds), "the first")
    grid = Grid(
        f"{backbone} and head, {identities:,} identities, {batch} images a step",
        ("head", unit, f"relative to {first}", "by the clock", "memory"),
        tuple(_speed_row(HEADS[head].label, speeds, first) for head in cost.heads),
    )
    bars = Chart(
        "Training speed",
        "",
        unit,
        {"here": [(place, speed) for place, (speed, *_) in enumerate(speeds.values())]},
        kind="bars",
        labels=tuple(speeds),
    )
    unfit = ["Where no speed is given, network and head do not fit the memory."] if len(fitting) < len(points) else []
    return [grid], [bars], unfit + lost


def _speed_row(label: str, speeds: Mapping[str, tuple[float, float, int]], first: str) -> tuple[str, ...]:
    if label not in speeds:
        return (label, *["–"] * 4)
    used, clock, held = speeds[label]
    return (label, f"{used:,.1f}", f"{used / speeds[first][0]:.2f}", f"{clock:,.1f}", write_size(held))


def _show_separation(cost: Cost, scale: Scale, device: str, memory: int, report: Report) -> Shown:
    batch = cost.batch_size if scale == "full" else cost.demo_batch_size
    points = [SeparationPoint(number, batch, cost.dimensions, device) for number in cost.sizes(scale)]
    fitting, lost = [point for point in points if 2 * point.bytes_of_vectors < memory], list[str]()
    found: dict[SeparationPoint, Measured] = {}
    for point in fitting:
        if taken := _try(partial(measure_separation, point), lost):
            found[point] = taken
            report(f"separation, {point.identities:,} vectors: {taken.seconds:.2f} s a step")
    if not found:
        return [], [], lost or ["No number of identities fits this machine's memory."]
    largest = max(found, key=lambda point: point.identities)
    per_vector = _undisturbed(device, found[largest]) / largest.identities
    beyond = [SeparationPoint(number * MILLION, batch, cost.dimensions) for number in COMPUTED]
    beyond = [point for point in beyond if point.identities > largest.identities]
    columns = ("vectors", SECONDS_OF_A_STEP, "memory", "")
    measured = [_separation_row(point, found.get(point)) for point in fitting]
    modelled = [
        (f"{point.identities:,}", f"{per_vector * point.identities:,.2f}", write_size(point.bytes_of_vectors), "model")
        for point in beyond
    ]
    grid = Grid(
        f"One step of separation, batches of {batch}, {cost.dimensions} dimensions", columns, (*measured, *modelled), 0
    )
    remark = (
        f"Model beyond: time is proportional to the number of vectors, as at {largest.identities:,}; memory is that of "
        "H in fp32, of which only chunks need to be on a device."
    )
    return [grid], _draw_separation(found, beyond, per_vector), [remark, *lost]


def _separation_row(point: SeparationPoint, measured: Measured | None) -> tuple[str, ...]:
    if measured is None:
        return (f"{point.identities:,}", "–", "–", "failed")
    seconds = _undisturbed(point.device, measured)
    return (f"{point.identities:,}", f"{seconds:.2f}", write_size(measured.bytes), "measured")


def _draw_separation(
    found: Mapping[SeparationPoint, Measured], beyond: list[SeparationPoint], per_vector: float
) -> list[Chart]:
    times: dict[str, list[tuple[float, float]]] = {
        "measured": [(point.identities, _undisturbed(point.device, each)) for point, each in found.items()],
        "model": [(point.identities, per_vector * point.identities) for point in beyond],
    }
    held: dict[str, list[tuple[float, float]]] = {
        "measured": [(point.identities, each.bytes / 2**30) for point, each in found.items()],
        "model": [(point.identities, point.bytes_of_vectors / 2**30) for point in beyond],
    }
    return [
        Chart("Memory", "code vectors", "GiB", held, log="xy"),
        Chart("Time", "code vectors", SECONDS_OF_A_STEP, times, log="xy"),
    ]
