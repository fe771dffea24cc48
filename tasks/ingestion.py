"""Ingestion as a cached task."""

import pyarrow.parquet as pq

from gif_core.artifacts import ArtifactStore, Draft
from gif_core.ingestion import Base, IngestionStep, SourceChangedError, describe_readers, ingest, open_base
from gif_core.readers import open_reader
from schemas.run import RunConfig
from tasks.progress import Rate, Ticker, track
from tasks.stage import Inputs, stage_task

STORE_SECONDS = 0.2
"""How often finished shards are looked for."""


@stage_task("ingestion", resumes=True)
def ingestion(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Faces of any source become Arrow shards with dense identity ids."""
    readers = [open_reader(source) for source in config.ingestion.sources]
    if describe_readers(readers) != draft.settings["sources"]:
        raise SourceChangedError("the sources changed while the run began: run it again")
    store = ArtifactStore(config.store)
    base = _open_base(store, draft)
    steps = ingest(config.ingestion, readers, draft.folder, workers=config.execution.workers, base=base)
    rate, store_due = Rate(), Ticker(STORE_SECONDS)
    for step in track(steps, "ingestion", lambda step: (step.images, step.total), lambda step: _describe(step, rate)):
        draft.metrics["images_read"] = step.images
        if store_due():
            store.begin_storing(draft, "*.arrow")
    for name in ("identities", "held_out", "quarantine"):
        draft.metrics[name] = pq.read_metadata(draft.folder / f"{name}.parquet").num_rows
    tables = [pq.read_table(draft.folder / f"{name}.parquet") for name in ("identities", "held_out")]
    draft.metrics["images"] = sum(sum(table["num_samples"].to_pylist()) for table in tables)


def _open_base(store: ArtifactStore, draft: Draft) -> Base:
    """What is stored already of sources that have grown; its shards become shards of this artifact too."""
    key = draft.settings.get("grown_from")
    if key is None:
        return Base()
    artifact = store.open(store.ref("ingestion", key))
    draft.carry(artifact, (name for name in artifact.names() if name.endswith(".arrow")))
    return open_base(artifact)


def _describe(step: IngestionStep, rate: Rate) -> str:
    return f"{rate(step.images):.0f} img/s  {step.bytes / 1e6:.0f} MB"
