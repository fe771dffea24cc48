"""Writers: one small file per format that others read, all with the protocol of `base`."""

from typing import Final

from gif_core.protocols.pairs import pair_rows
from gif_core.writers.base import Crowd, Face, Writer
from gif_core.writers.export import export_faces, group_rows
from gif_core.writers.folder import write_folder
from gif_core.writers.pair_file import write_pair_file
from gif_core.writers.recordio import write_recordio
from gif_core.writers.webdataset import write_webdataset

FORMATS: Final[dict[str, Writer]] = {
    "recordio": write_recordio,
    "folder": write_folder,
    "webdataset": write_webdataset,
    "bin": write_pair_file,
}

__all__ = ["FORMATS", "Crowd", "Face", "Writer", "export_faces", "group_rows", "pair_rows"]
