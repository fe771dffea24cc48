"""Writers: the formats that faces are exported to, one file each, all with the protocol of `base`.

base        What every writer of faces takes and gives
export      Exporting: faces of the store, in the order a format wants them, to a folder that appears when it is comp...
folder      A folder with one sub-folder of images per identity
formats     The writer of a format by its name
pair_file   Verification files as insightface has them, `.bin`: a pickle of (images, whether each pair is of one person)
recordio    MXNet RecordIO in insightface's layout: `train.rec`, `train.idx` and `property`
webdataset  WebDataset: tar files of samples, each an image `<key>.jpg`, its class `<key>.cls` and `<key>.json`
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "FORMATS",
    "PAIR_FILE",
    "Crowd",
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
    from gif_core.writers.base import Crowd, Face, Writer
    from gif_core.writers.export import export_faces, group_rows, new_folder
    from gif_core.writers.folder import write_folder
    from gif_core.writers.formats import FORMATS
    from gif_core.writers.pair_file import PAIR_FILE, write_pair_file
    from gif_core.writers.recordio import write_recordio
    from gif_core.writers.webdataset import write_webdataset
else:
    __getattr__ = lazy_imports(__name__)
