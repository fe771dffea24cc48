"""Readers: one small file per format, all with the protocol of `base`."""

from gif_core.readers.base import Reader, SourceIdentity
from gif_core.readers.folder import FolderReader
from gif_core.readers.synthetic import SyntheticReader
from schemas.ingestion import FolderSource, Source

__all__ = ["FolderReader", "Reader", "SourceIdentity", "SyntheticReader", "open_reader"]


def open_reader(source: Source) -> Reader:
    """The reader that fits a configured source."""
    return FolderReader(source) if isinstance(source, FolderSource) else SyntheticReader(source)
