"""Evaluation sets: one file for each format, local or at any fsspec URL.

bin        Reading verification files (`.bin`): a pickle that anybody may have made, opened so that nothing in it can...
describe   What evaluation sets hold, for keys, and where the synthetic sets among them are written
files      Files of evaluation sets, in a folder or at any fsspec URL, and text files in columns whose errors say where
ijb        The files of IJB-B and IJB-C as the field passes them on: `meta/` in text, and `loose_crop/` with the images
pairs      Pairs of images from third-party files: an insightface `.bin`, LFW's `pairs.txt`, or a Parquet table
synthetic  Small evaluation sets of drawn identities in exactly the files of the real ones, so that all of their code
can...
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
    "describe_ijb",
    "describe_set",
    "open_pair_set",
    "open_pairs",
    "open_template_set",
    "read_faces",
    "read_ijb",
    "write_synthetic_bin",
    "write_synthetic_ijb",
]

if TYPE_CHECKING:
    from gif_core.protocols.sets.describe import describe_set, open_pair_set, open_template_set
    from gif_core.protocols.sets.files import EvaluationFiles
    from gif_core.protocols.sets.ijb import CROPS, IjbImages, IjbMeta, IjbName, describe_ijb, read_faces, read_ijb
    from gif_core.protocols.sets.pairs import PairSet, open_pairs
    from gif_core.protocols.sets.synthetic import write_synthetic_bin, write_synthetic_ijb
else:
    __getattr__ = lazy_imports(__name__)
