"""The writers by the name of their format."""

from typing import Final

from gif_core.writers.base import Writer
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
