"""The results of evaluation as files: JSON for readers and programs, Parquet for SQL."""

# Shapes: P pairs, H height, W width, C channels.

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import MetricsWriter
from gif_core.evaluation.single_scores import PAIRS, SEARCHES
from gif_core.images import Images
from gif_core.protocols import (
    RANKS,
    SEARCH_RANKS,
    FlagValues,
    Identification,
    Pairs,
    Roc,
    TemplateVerification,
    Verification,
    flags_of,
    worst_errors,
    write_json,
)
from schemas.files import (
    CMC_FILE,
    ERRORS_FILE,
    IDENTIFICATION_FILE,
    METRICS_FILE,
    PAIR_SCORES_FILE,
    ROC_FILE,
    SCORE_TABLE_FILE,
    SCORES_FILE,
    SEARCHES_FILE,
)

SCORES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("system", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("protocol", pa.string()),
        ("flags", pa.string()),
        ("model", pa.string()),
    ]
)
ROC: Final = pa.schema(
    [
        ("set", pa.string()),
        ("system", pa.string()),
        ("far", pa.float64()),
        ("tar", pa.float64()),
        ("score", pa.float64()),
    ]
)
CMC: Final = pa.schema([("set", pa.string()), ("system", pa.string()), ("rank", pa.int64()), ("share", pa.float64())])
ERRORS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("system", pa.string()),
        ("same", pa.bool_()),
        ("distance", pa.float64()),
        ("threshold", pa.float64()),
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("left_image", pa.binary()),
        ("right_image", pa.binary()),
    ]
)
"""The most confident errors: numbers of the images in their set, and the images as JPEG files."""
ROC_POINTS: Final = 400
ERRORS_SHOWN: Final = 8
"""Errors of each kind that are kept."""
Metrics = dict[str, float]


@dataclass
class SystemResult:
    """The results of one system on a set."""

    metrics: Metrics
    flags: FlagValues = field(default_factory=dict)
    """Flags of this system only."""
    roc: Roc | None = None
    cmc: NDArray[np.float64] | None = None
    distance_P: NDArray[np.float64] | None = None
    """Squared distances of all pairs, for sets that are a group of a benchmark."""


@dataclass
class SetResult:
    """The results of all systems on a set, or why there are none."""

    title: str
    kind: str
    protocol: str
    flags: FlagValues
    """Flags shared by all systems."""
    counts: dict[str, int]
    systems: dict[str, SystemResult] = field(default_factory=dict)
    undefined: str | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `errors.parquet`, without the set."""
    pair_scores: pa.Table | None = None
    """The model's scores of single pairs, for comparison with another model; `searches` has those of single probes."""
    searches: pa.Table | None = None
    parts: list[str] = field(default_factory=list)
    """The stored parts that the features were read from."""
    parts_computed: int = 0
    group: str | None = None
    """The benchmark that this set is a group of; `same_P` has the kind of its pairs."""
    same_P: NDArray[np.bool_] | None = None

    @property
    def metrics(self) -> dict[str, Metrics]:
        """The metrics of every system."""
        return {name: system.metrics for name, system in self.systems.items()}

    def describe(self) -> dict[str, Any]:
        """The entry of `scores.json`."""
        about = {"kind": self.kind, "protocol": self.protocol, "flags": dict(self.flags), **self.counts}
        own_flags = {name: system.flags for name, system in self.systems.items() if system.flags}
        about |= {"system_flags": own_flags} if own_flags else {}
        return about | {"systems": self.metrics} | ({"undefined": self.undefined} if self.undefined else {})


def pair_metrics(result: Verification) -> Metrics:
    """The metrics of image pairs by name."""
    metrics = {"accuracy": result.accuracy, "accuracy_std": result.accuracy_std, "threshold": result.threshold}
    metrics |= {"threshold_far": result.threshold_far, "threshold_tar": result.threshold_tar}
    return metrics | {f"tar_at_far_{far:g}": tar for far, tar in result.tar_at_far.items()}


def template_metrics(result: TemplateVerification) -> Metrics:
    """The 1:1 metrics by name."""
    return {f"tar_at_far_{far:g}": tar for far, tar in result.tar_at_far.items()}


def identification_metrics(result: Identification) -> Metrics:
    """The 1:N metrics by name."""
    metrics: Metrics = {}
    for fpir, tpir in result.tpir_at_fpir.items():
        metrics |= {f"tpir_at_fpir_{fpir:g}": tpir, f"fnir_at_fpir_{fpir:g}": 1.0 - tpir}
    return metrics | {f"rank_{rank}": float(result.cmc[rank - 1]) for rank in RANKS}


def search_metrics(cmc: NDArray[np.float64]) -> Metrics:
    """The ranks of a search of single images by name."""
    return {f"rank_{rank}": float(cmc[rank - 1]) for rank in SEARCH_RANKS}


def error_rows(
    system: str,
    images: Images,
    pairs: Pairs,
    distance_P: NDArray[np.float64],
    threshold: float,
    most: int = ERRORS_SHOWN,
) -> list[dict[str, Any]]:
    """The most confident false matches and misses of a system, with their images."""
    worst = worst_errors(distance_P, pairs.same, threshold, most)
    sides = {"left": pairs.left[worst], "right": pairs.right[worst]}
    columns: dict[str, list[Any]] = {"same": pairs.same[worst].tolist(), "distance": distance_P[worst].tolist()}
    for side, rows in sides.items():
        columns |= {side: rows.tolist(), f"{side}_image": [_encode(image) for image in images.load(rows)]}
    about = {"system": system, "threshold": threshold}
    return [{**about, **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)]


def write_scores(
    folder: Path,
    results: Sequence[SetResult],
    model: str,
    identification: SetResult | None = None,
    groups: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write `scores.json` and the tables of scores, metrics, ROC, CMC, errors, and scores of single pairs.

    Identification among the enrolled has its own JSON file; its metrics are in the same tables.
    """
    sets = {result.title: result.describe() for result in results}
    write_json(folder / SCORES_FILE, {"model": model, "sets": sets} | ({"groups": dict(groups)} if groups else {}))
    if identification:
        write_json(folder / IDENTIFICATION_FILE, {"model": model, **identification.describe()})
    _write_metrics(folder, [*results, identification] if identification else results, model)
    _write_curves(folder, results)
    errors = [{"set": result.title, **row} for result in results for row in result.errors]
    pq.write_table(pa.Table.from_pylist(errors, ERRORS), folder / ERRORS_FILE)
    pairs = [result.pair_scores for result in results if result.pair_scores is not None]
    pq.write_table(pa.concat_tables([PAIRS.empty_table(), *pairs]), folder / PAIR_SCORES_FILE)
    searches = [result.searches for result in results if result.searches is not None]
    pq.write_table(pa.concat_tables([SEARCHES.empty_table(), *searches]), folder / SEARCHES_FILE)


def _write_metrics(folder: Path, results: Sequence[SetResult], model: str) -> None:
    rows = [row for result in results for row in _rows(result, model)]
    pq.write_table(pa.Table.from_pylist(rows, SCORES), folder / SCORE_TABLE_FILE)
    with MetricsWriter(folder / METRICS_FILE, "evaluation") as writer:
        writer.add(None, {f"{row['set']}/{row['system']}/{row['metric']}": row["value"] for row in rows})


def _write_curves(folder: Path, results: Sequence[SetResult]) -> None:
    systems = [(result.title, name, system) for result in results for name, system in result.systems.items()]
    curves = [_curve(title, name, system.roc) for title, name, system in systems if system.roc is not None]
    pq.write_table(pa.concat_tables([ROC.empty_table(), *curves]), folder / ROC_FILE)
    ranks = [_ranks(title, name, system.cmc) for title, name, system in systems if system.cmc is not None]
    pq.write_table(pa.concat_tables([CMC.empty_table(), *ranks]), folder / CMC_FILE)


def _encode(image_HWC: NDArray[np.uint8]) -> bytes:
    content: bytes = cv2.imencode(".jpg", cv2.cvtColor(image_HWC, cv2.COLOR_RGB2BGR))[1].tobytes()
    return content


def _rows(result: SetResult, model: str) -> list[dict[str, Any]]:
    about = {"set": result.title, "protocol": result.protocol, "model": model}
    flags = {system: json.dumps(flags_of(result.describe(), system)) for system in result.systems}
    return [
        {**about, "system": system, "flags": flags[system], "metric": metric, "value": value}
        for system, metrics in result.metrics.items()
        for metric, value in metrics.items()
    ]


def _curve(title: str, system: str, roc: Roc) -> pa.Table:
    """The ROC, thinned to what a plot with a log axis can show; the first point has no score."""
    lowest = roc.far[roc.far > 0].min()
    by_far = np.searchsorted(roc.far, np.geomspace(lowest, 1, ROC_POINTS))
    points = np.unique(np.append(by_far, np.linspace(0, len(roc.far) - 1, ROC_POINTS).astype(int)))
    points = points[points < len(roc.far)]
    score = pa.array(roc.score[points], mask=~np.isfinite(roc.score[points]))
    names = [[title] * len(points), [system] * len(points)]
    return pa.table([*names, roc.far[points], roc.tar[points], score], schema=ROC)


def _ranks(title: str, system: str, cmc: NDArray[np.float64]) -> pa.Table:
    names = [[title] * len(cmc), [system] * len(cmc)]
    return pa.table([*names, np.arange(1, len(cmc) + 1), cmc], schema=CMC)
