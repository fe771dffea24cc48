"""Ingestion: faces of any source become Arrow shards with dense identity ids and a held-out split.

stage        run: faces of any source → Arrow shards, and the tables about them
conversion   ingest: planning the splits, reading, the tables of identities and of the quarantine
catalogue    all records and identities of all sources, and reading them ahead
relabelling  lists of wrong labels: reading, checking, writing
relabelled   the catalogue with such a list applied
splits       the faces of one split: assigning identity ids, filling shards
shards       Arrow shards, and the journal from which a killed ingestion resumes
sufficiency  whether the faces suffice for the settings of training
incremental  reading only what is new when sources have grown
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "SCHEMA",
    "Base",
    "Change",
    "IngestionStep",
    "NotEnoughDataError",
    "RelabellingError",
    "SourceChangedError",
    "check_enough",
    "describe_readers",
    "describe_relabelling",
    "find_base",
    "ingest",
    "open_base",
    "place_of",
    "read_relabelling",
    "write_relabelling",
]

if TYPE_CHECKING:
    from gif_core.ingestion.conversion import IngestionStep, SourceChangedError, describe_readers, ingest, place_of
    from gif_core.ingestion.incremental import Base, find_base, open_base
    from gif_core.ingestion.relabelling import (
        Change,
        RelabellingError,
        describe_relabelling,
        read_relabelling,
        write_relabelling,
    )
    from gif_core.ingestion.shards import SCHEMA
    from gif_core.ingestion.sufficiency import NotEnoughDataError, check_enough
else:
    __getattr__ = lazy_imports(__name__)
