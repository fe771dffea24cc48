"""Ingestion: faces of any source become Arrow shards with dense identity ids and a held-out split.

catalogue    All records and identities of all sources of a run under one numbering, and reading ahead in any order
conversion   Ingestion: faces of any source → Arrow shards, dense identity ids, and a split of identities kept aside
incremental  Sources that have grown: what an earlier ingestion holds already, so that only the rest is read
shards       Arrow IPC shards of faces: written batch by batch, and finished when their journal entry is there
splits       The faces of one split: identities get their identity ids, and their images go into shards
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "SCHEMA",
    "Base",
    "IngestionStep",
    "SourceChangedError",
    "describe_readers",
    "find_base",
    "ingest",
    "open_base",
]

if TYPE_CHECKING:
    from gif_core.ingestion.conversion import IngestionStep, SourceChangedError, describe_readers, ingest
    from gif_core.ingestion.incremental import Base, find_base, open_base
    from gif_core.ingestion.shards import SCHEMA
else:
    __getattr__ = lazy_imports(__name__)
