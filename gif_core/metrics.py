"""Metrics of training and evaluation as one long table: stage, step, name, value."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.stages import StageName

METRICS = pa.schema(
    [("stage", pa.string()), ("step", pa.int64()), ("name", pa.string()), ("value", pa.float64())]
)


def metric_rows(stage: StageName, step: int | None, values: Mapping[str, float]) -> list[dict[str, Any]]:
    """One row per figure; figures of no particular step have none."""
    return [{"stage": stage, "step": step, "name": name, "value": value} for name, value in values.items()]


def write_metrics(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rows as Parquet."""
    pq.write_table(pa.Table.from_pylist(list(rows), METRICS), path)
