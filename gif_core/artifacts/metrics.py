"""Metrics of training and evaluation as a Parquet table: stage, step, name, value."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.stages import StageName

METRICS = pa.schema([("stage", pa.string()), ("step", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
ROWS_IN_MEMORY = 100_000


class MetricsWriter:
    """Writes metrics to a Parquet file in batches, with few rows in memory."""

    def __init__(self, path: Path, stage: StageName) -> None:
        """Create the file."""
        self.writer, self.stage = pq.ParquetWriter(path, METRICS), stage
        self.steps: list[int | None] = []
        self.names: list[str] = []
        self.values: list[float] = []

    def add(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Add one row per metric; `step` is None for metrics of the whole stage."""
        self.steps += [step] * len(metrics)
        self.names += metrics.keys()
        self.values += metrics.values()
        if len(self.values) >= ROWS_IN_MEMORY:
            self._flush()

    def _flush(self) -> None:
        columns = [[self.stage] * len(self.steps), self.steps, self.names, self.values]
        self.writer.write_table(pa.table(columns, schema=METRICS))
        self.steps, self.names, self.values = [], [], []

    def __enter__(self) -> Self:
        """The file is complete when the context ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the remaining rows and close the file."""
        self._flush()
        self.writer.close()
