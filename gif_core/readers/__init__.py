"""Readers: the formats that faces come in, one file each, all with the protocol of `base`.

archives          Tar archives: their members are found by the headers and read where they lie, nothing is ever extra...
base              What every reader of a face dataset offers
columns           One column of a Parquet or Arrow file, from front to back, with bounds on what a damaged file can a...
factory           The reader of a configured source
files             Files of a source on a local disk or any fsspec file system: found, told apart, and read by ranges
folder            A folder with one sub-folder of images per identity, local or on any fsspec file system
packed            What the formats that pack many images into one file have in common: an index, and reading by ranges
recordio          MXNet RecordIO without mxnet: `train.rec`, with or without `train.idx` and `property`
recordio_framing  Records of MXNet RecordIO files: where they lie, and what their headers say
spool             A local copy of what can only be read from front to back, for reading it person by person
synthetic         Faces that the project draws itself, as a source like any other
tables            Parquet and Arrow files with a column of images, as Hugging Face writes them
webdataset        WebDataset: tar files whose members `key.jpg`, `key.cls`, `key.json` belong together
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "FolderReader",
    "PackedReader",
    "Reader",
    "RecordIOReader",
    "SyntheticReader",
    "TableReader",
    "WebDatasetReader",
    "open_reader",
    "readable",
]

if TYPE_CHECKING:
    from gif_core.readers.base import Reader
    from gif_core.readers.factory import open_reader
    from gif_core.readers.folder import FolderReader
    from gif_core.readers.packed import PackedReader
    from gif_core.readers.recordio import RecordIOReader
    from gif_core.readers.spool import readable
    from gif_core.readers.synthetic import SyntheticReader
    from gif_core.readers.tables import TableReader
    from gif_core.readers.webdataset import WebDatasetReader
else:
    __getattr__ = lazy_imports(__name__)
