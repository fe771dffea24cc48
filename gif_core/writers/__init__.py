"""Writers: exporting faces, one file per format, all with the interface of `base`.

base        Face, ExportInfo and Writer, the interface
export      export_faces: writing faces of the store to a new folder
formats     the writers by the name of their format
folder      one sub-folder of images per identity
recordio    MXNet RecordIO in insightface's layout; splitting records
webdataset  tar files of samples
pair_file   insightface's `.bin` files of pairs
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "FORMATS",
    "PAIR_FILE",
    "ExportInfo",
    "Face",
    "Writer",
    "export_faces",
    "group_rows",
    "new_folder",
    "write_folder",
    "write_pair_file",
    "write_recordio",
    "write_webdataset",
]

if TYPE_CHECKING:
    from gif_core.writers.base import ExportInfo, Face, Writer
    from gif_core.writers.export import export_faces, group_rows, new_folder
    from gif_core.writers.folder import write_folder
    from gif_core.writers.formats import FORMATS
    from gif_core.writers.pair_file import PAIR_FILE, write_pair_file
    from gif_core.writers.recordio import write_recordio
    from gif_core.writers.webdataset import write_webdataset
else:
    __getattr__ = lazy_imports(__name__)
