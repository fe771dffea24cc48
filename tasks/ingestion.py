"""Ingestion as a cached task."""

import pyarrow.parquet as pq

from gif_core.artifacts import Draft
from gif_core.ingestion import ingest
from schemas.run import RunConfig
from tasks.progress import track
from tasks.stage import Inputs, stage_task


@stage_task("ingestion")
def ingestion(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Faces of any source become Arrow shards with dense identity ids."""
    steps = ingest(config.ingestion, draft.folder, workers=config.execution.workers)
    for step in track(steps, "ingestion", lambda step: (step.images, step.total)):
        draft.metrics["images"] = step.images
    for name in ("identities", "held_out", "quarantine"):
        draft.metrics[name] = pq.read_metadata(draft.folder / f"{name}.parquet").num_rows
