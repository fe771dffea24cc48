"""Ingestion as a cached task."""

import pyarrow.parquet as pq

from gif_core.artifacts import Draft
from gif_core.ingestion import SourceChangedError, describe_readers, ingest
from gif_core.readers import open_reader
from schemas.run import RunConfig
from tasks.progress import track
from tasks.stage import Inputs, stage_task


@stage_task("ingestion")
def ingestion(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Faces of any source become Arrow shards with dense identity ids."""
    readers = [open_reader(source) for source in config.ingestion.sources]
    if describe_readers(readers) != draft.settings["sources"]:
        raise SourceChangedError("the sources changed while the run began: run it again")
    steps = ingest(config.ingestion, readers, draft.folder, workers=config.execution.workers)
    for step in track(steps, "ingestion", lambda step: (step.images, step.total)):
        draft.metrics["images"] = step.images
    for name in ("identities", "held_out", "quarantine"):
        draft.metrics[name] = pq.read_metadata(draft.folder / f"{name}.parquet").num_rows
