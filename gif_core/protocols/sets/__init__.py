"""Evaluation sets: the images and pairs of each format, read from a folder or any fsspec URL.

opening       Opens a configured set with the reader of its format; writes synthetic sets first
describe      What a set holds, as part of the key of its scores
pair_set      `PairSet`: images and pairs, whatever file they come from
bin           insightface's `.bin`: a pickle from an untrusted source, parsed without running anything in it
lfw           LFW's `pairs.txt` and its folder of images
parquet       Pairs in a Parquet table
ijb           IJB-B and IJB-C: `meta/` and `loose_crop/`
tinyface      TinyFace: folders of gallery, distractors and probes
synthetic     Draws small synthetic benchmark sets in the file formats of the real ones
files         Reads, lists and digests the files of a set
text_columns  Text files in columns, with errors that name the line and the column
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "CROPS",
    "EvaluationFiles",
    "IjbImages",
    "IjbMeta",
    "IjbName",
    "PairSet",
    "SearchSet",
    "describe_ijb",
    "describe_set",
    "describe_tinyface",
    "list_tinyface",
    "open_pair_set",
    "open_pairs",
    "open_template_set",
    "read_faces",
    "read_ijb",
    "read_tinyface",
    "tinyface_files",
    "tinyface_images",
    "write_synthetic_bin",
    "write_synthetic_ijb",
]

if TYPE_CHECKING:
    from gif_core.protocols.sets.describe import describe_set
    from gif_core.protocols.sets.files import EvaluationFiles
    from gif_core.protocols.sets.ijb import CROPS, IjbImages, IjbMeta, IjbName, describe_ijb, read_faces, read_ijb
    from gif_core.protocols.sets.opening import open_pair_set, open_pairs, open_template_set
    from gif_core.protocols.sets.pair_set import PairSet
    from gif_core.protocols.sets.synthetic import write_synthetic_bin, write_synthetic_ijb
    from gif_core.protocols.sets.tinyface import (
        SearchSet,
        describe_tinyface,
        list_tinyface,
        read_tinyface,
        tinyface_files,
        tinyface_images,
    )
else:
    __getattr__ = lazy_imports(__name__)
