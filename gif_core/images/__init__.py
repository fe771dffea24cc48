"""Images: decoding, checking and aligning faces, and reading them from mapped shards.

alignment      Alignment: five landmarks of a face are brought to where the field's networks expect them
blocks         Image files that lie in one piece of memory, and the check of all of them at once
checks         Whether the bytes of an image file can be trained on, found out at the speed at which they are read
contact_sheet  Contact sheets: one row of faces for each identity, with its name on the left
faces          Faces of Arrow IPC shards, read by memory map in any order
landmarks      Five points for every image of a folder: a text file with lines of `label/image.jpg x1 y1 … x5 y5`
load           Images of third-party files as faces: what they declare is checked before they are decoded
pixels         Faces as the network sees them: where pixels come from, and how they are scaled
source_files   Files of a source: names, sizes and digests
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "IMAGE_ENDINGS",
    "IMAGE_SIZE",
    "LARGEST_IMAGE",
    "BadImageError",
    "BlockChecker",
    "Faces",
    "ImageBlock",
    "ImageLimits",
    "Images",
    "Landmarks",
    "SourceFile",
    "align",
    "are_usable",
    "check_ending",
    "check_image",
    "decode",
    "draw_contact_sheet",
    "gather",
    "join",
    "load_each",
    "normalize_pixels",
    "open_faces",
    "read_face",
    "read_face_file",
    "read_landmarks",
]

if TYPE_CHECKING:
    from gif_core.images.alignment import align, are_usable
    from gif_core.images.blocks import BlockChecker, ImageBlock, gather, join
    from gif_core.images.checks import BadImageError, ImageLimits, check_image
    from gif_core.images.contact_sheet import check_ending, draw_contact_sheet
    from gif_core.images.faces import IMAGE_SIZE, Faces, Images, decode, open_faces
    from gif_core.images.landmarks import Landmarks, read_landmarks
    from gif_core.images.load import load_each, read_face, read_face_file
    from gif_core.images.pixels import normalize_pixels
    from gif_core.images.source_files import IMAGE_ENDINGS, LARGEST_IMAGE, SourceFile
else:
    __getattr__ = lazy_imports(__name__)
