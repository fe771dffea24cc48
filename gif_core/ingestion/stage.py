"""The stage ingestion: faces of any source → Arrow shards with dense identity ids, and the tables about them."""

from collections.abc import Generator, Iterable
from typing import Final

import pyarrow.parquet as pq

from gif_core.artifacts import ArtifactStore, Draft, Inputs
from gif_core.ingestion.conversion import SourceChangedError, describe_readers, image_limits, ingest
from gif_core.ingestion.incremental import Base, open_base
from gif_core.ingestion.relabelling import Relabelling, describe_relabelling, read_relabelling
from gif_core.readers import open_reader
from gif_core.runtime import Progress, Rate, Ticker
from schemas.files import HELD_OUT_FILE, IDENTITIES_FILE, QUARANTINE_FILE
from schemas.run import RunConfig

STORE_SECONDS: Final = 0.2
"""How often finished shards are looked for."""


def run(config: RunConfig, inputs: Inputs, draft: Draft) -> Generator[Progress, None, None]:
    """Convert the faces of all sources, and begin to store shards while others are written."""
    readers = [open_reader(source, image_limits(config.ingestion)) for source in config.ingestion.sources]
    if describe_readers(readers) != draft.settings["sources"]:
        raise SourceChangedError("the sources changed while the run began: run it again")
    lists = config.ingestion.relabel or ()
    if describe_relabelling(lists) != draft.settings.get("relabel", []):
        raise SourceChangedError("a list of ingestion.relabel changed while the run began: run it again")
    store = ArtifactStore(config.store)
    base = _open_base(store, draft)
    rate, store_due = Rate(), Ticker(STORE_SECONDS)
    yield Progress("ingestion", 0, None)
    for step in ingest(config.ingestion, readers, draft.folder, workers=config.execution.workers, base=base):
        speed = f"{rate(step.images):.0f} img/s  {step.bytes / 1e6:.0f} MB"
        yield Progress("ingestion", step.images, step.total, speed)
        draft.metrics["images_read"] = step.images
        if store_due():
            store.begin_storing(draft, "*.arrow")
    _count_rows(draft)
    _count_changes(draft, map(read_relabelling, lists))


def _count_changes(draft: Draft, lists: Iterable[Relabelling]) -> None:
    for each in lists:
        for name, count in (("moved", each.moved), ("dropped", each.dropped)):
            draft.metrics[name] = int(draft.metrics.get(name, 0)) + count


def _count_rows(draft: Draft) -> None:
    files = {"identities": IDENTITIES_FILE, "held_out": HELD_OUT_FILE, "quarantine": QUARANTINE_FILE}
    for name, file in files.items():
        draft.metrics[name] = pq.read_metadata(draft.folder / file).num_rows
    tables = [pq.read_table(draft.folder / file) for file in (IDENTITIES_FILE, HELD_OUT_FILE)]
    draft.metrics["images"] = sum(sum(table["num_samples"].to_pylist()) for table in tables)


def _open_base(store: ArtifactStore, draft: Draft) -> Base:
    """What is stored already of sources that have grown; its shards become shards of this artifact too."""
    key = draft.settings.get("grown_from")
    if key is None:
        return Base()
    artifact = store.open(store.ref("ingestion", key))
    draft.carry(artifact, (name for name in artifact.names() if name.endswith(".arrow")))
    return open_base(artifact)
