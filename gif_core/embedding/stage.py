"""The stage embedding: faces → `vectors.parquet`, one row per identity, summed from stored parts."""

from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import torch

from gif_core.artifacts import ArtifactStore, Draft, Inputs, InThisProcess, PartRun, PartRunner, PartStore, list_parts
from gif_core.embedding.encoders import build_encoder
from gif_core.embedding.mean_vectors import PartSums, Summary, identity_vectors
from gif_core.embedding.part_jobs import plan_jobs
from gif_core.runtime import Progress
from schemas.files import IDENTITIES_FILE, LEAST_COHESIVE_FILE, PARTS_FILE, VECTORS_FILE
from schemas.run import RunConfig

LOADED_PARTS: Final = 4
"""Parts in memory while vectors are summed."""


def run(
    config: RunConfig, inputs: Inputs, draft: Draft, runner: PartRunner | None = None
) -> Generator[Progress, None, None]:
    """Give every identity the mean of its faces' encoder features (Eq. 3)."""
    faces, parts = inputs["ingestion"], PartStore(ArtifactStore(config.store), "embedding")
    runner = runner or InThisProcess(config.execution.workers)
    part_run = PartRun(parts, plan_jobs(config, faces, draft.settings), from_scratch=draft.from_scratch)
    draft.metrics["parts_computed"] = len(part_run.missing)
    if part_run.missing:
        build_encoder(config.embedding, torch.device("cpu"))  # report wrong weights once, before any part
        draft.metrics["runner"] = runner.name
    names = yield from part_run.complete(runner, "embedding")
    (draft.folder / PARTS_FILE).write_text(list_parts(names))
    _write_vectors(draft, faces.path(IDENTITIES_FILE), parts, names)


def _write_vectors(draft: Draft, identities_file: Path, parts: PartStore, names: list[str]) -> None:
    """Sum the parts to identity vectors, a window at a time."""

    @lru_cache(LOADED_PARTS)
    def load(number: int) -> PartSums:
        return PartSums.from_bytes(parts.load(names[number]))

    summary, identities = Summary(), pq.read_metadata(identities_file).num_rows
    spans = [load(number).span for number in range(len(names))]
    writer: pq.ParquetWriter | None = None
    for table in identity_vectors(spans, load, identities):
        writer = writer or pq.ParquetWriter(draft.folder / VECTORS_FILE, table.schema)
        writer.write_table(table)
        summary.add(table)
    if writer is None:
        raise ValueError("there are no identities to embed")
    writer.close()
    _write_summary(draft, summary, identities_file)


def _write_summary(draft: Draft, summary: Summary, identities_file: Path) -> None:
    chosen = [("identity_id", "in", [identity for _, identity, _ in summary.lowest])]
    named = pq.read_table(identities_file, columns=["identity_id", "label"], filters=chosen if summary.lowest else None)
    labels = dict(zip(named["identity_id"].to_pylist(), named["label"].to_pylist(), strict=True))
    pq.write_table(summary.least_cohesive(labels), draft.folder / LEAST_COHESIVE_FILE)
    draft.metrics |= summary.metrics
