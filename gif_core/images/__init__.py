"""Images: decoding, checking and aligning faces, and reading them from memory-mapped shards.

faces          Faces: the faces of Arrow shards, read and decoded in any order
alignment      aligning a face by five landmarks
landmarks      reading a landmarks file
bounds         what decoding a file would cost, before it is decoded
checks         whether an image file can be used, without decoding it where possible
blocks         checking many image files in one piece of memory at once
load           loading faces from untrusted image files
pixels         scaling pixels for networks
contact_sheet  images with one row of faces per identity
source_files   names, sizes and digests of source files; endings of image files
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "IMAGE_ENDINGS",
    "IMAGE_SIZE",
    "LARGEST_IMAGE",
    "LIMITS",
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
    "decode_bounded",
    "draw_contact_sheet",
    "gather",
    "is_small_jpeg",
    "join",
    "load_each",
    "normalize_pixels",
    "open_faces",
    "read_face",
    "read_face_file",
    "read_image_file",
    "read_landmarks",
]

if TYPE_CHECKING:
    from gif_core.images.alignment import align, are_usable
    from gif_core.images.blocks import BlockChecker, ImageBlock, gather, join
    from gif_core.images.bounds import BadImageError, ImageLimits, is_small_jpeg
    from gif_core.images.checks import check_image
    from gif_core.images.contact_sheet import check_ending, draw_contact_sheet
    from gif_core.images.faces import IMAGE_SIZE, Faces, Images, decode, open_faces
    from gif_core.images.landmarks import Landmarks, read_landmarks
    from gif_core.images.load import LIMITS, decode_bounded, load_each, read_face, read_face_file, read_image_file
    from gif_core.images.pixels import normalize_pixels
    from gif_core.images.source_files import IMAGE_ENDINGS, LARGEST_IMAGE, SourceFile
else:
    __getattr__ = lazy_imports(__name__)
