"""Readers: reading face datasets, one file per format, all with the interface of `base`.

base              Reader and Listing, the interface; faults; numbers of labels
factory           open_reader: the reader of a configured source
folder            one sub-folder of images per identity
local_folder      listing a local folder: links, and entries that cannot be listed
recordio          MXNet RecordIO: labels, `.idx` and `property` files
recordio_framing  records of RecordIO files: headers, split records, damage
webdataset        WebDataset: samples of tar files
archives          members of tar archives
tables            Parquet and Arrow files with a column of images
columns           reading one column of a Parquet or Arrow file, with bounds on memory
detected          photographs of any reader as aligned faces
synthetic         generated faces
packed            what formats with many images per file share: an index, and reads of ranges
files             files of a source on local disks and fsspec file systems
spool             a local copy of images that can only be read in order
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "DetectingReader",
    "FolderReader",
    "PackedReader",
    "Reader",
    "RecordIOReader",
    "SyntheticReader",
    "TableReader",
    "UnfoldingBound",
    "UnreadableTableError",
    "WebDatasetReader",
    "is_label",
    "open_reader",
    "read_batches",
    "readable",
]

if TYPE_CHECKING:
    from gif_core.readers.base import Reader, is_label
    from gif_core.readers.columns import UnfoldingBound, UnreadableTableError, read_batches
    from gif_core.readers.detected import DetectingReader
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
