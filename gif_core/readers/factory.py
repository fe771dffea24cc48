"""Choosing the reader of a configured source."""

from gif_core.images import LIMITS, ImageLimits
from gif_core.readers.base import Reader
from gif_core.readers.detected import DetectingReader
from gif_core.readers.folder import FolderReader
from gif_core.readers.recordio import RecordIOReader
from gif_core.readers.synthetic import SyntheticReader
from gif_core.readers.tables import TableReader
from gif_core.readers.webdataset import WebDatasetReader
from schemas.ingestion import FolderSource, RecordIOSource, Source, SyntheticSource, TableSource


def open_reader(source: Source, limits: ImageLimits = LIMITS) -> Reader:
    """The reader for a configured source; `limits` hold for images that a reader decodes itself."""
    reader = _open_format(source, limits)
    return DetectingReader(reader, limits) if getattr(source, "detect", False) else reader


def _open_format(source: Source, limits: ImageLimits) -> Reader:
    if isinstance(source, SyntheticSource):
        return SyntheticReader(source)
    if isinstance(source, FolderSource):
        return FolderReader(source, limits)
    if isinstance(source, RecordIOSource):
        return RecordIOReader(source)
    return TableReader(source) if isinstance(source, TableSource) else WebDatasetReader(source)
