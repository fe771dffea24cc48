"""Tokenization (Algorithm 1): how code vectors become identity codes.

stage                `run`: code vectors → `codes.duckdb`, `codes.parquet` and the quality of the codes
codes                `CodeShape` (length l, vocab size v, capacity), checks, packing into integers, atomic codes
hierarchical_kmeans  `tokenize`: Algorithm 1, capacity-bounded hierarchical k-means
kmeans               Spherical k-means, plain and bounded: one split of Algorithm 1
assignment           `assign_bounded`: the optimal assignment under the capacity bound (below Eq. 6)
token_alignment      Renumbers the children of all parents so that a token value stands for one direction
extension            Codes for new identities; existing codes never change
new_identities       Reads vectors and labels of new identities from a file
prefix_sums          Sums and means of vectors by code prefix or by any label
quality              Metrics of a code table: occupancy, cost of the capacity bound, structure kept
code_table           Writes and reads `codes.duckdb` and `codes.parquet`; checks that they match the identities
code_index           Look-up in both directions between identities and codes, vectorised
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "CodeIndex",
    "CodeShape",
    "Codes",
    "Vectors",
    "align_tokens",
    "append_identities",
    "assign_bounded",
    "bounded_kmeans",
    "check_codes",
    "check_identities",
    "code_quality",
    "code_shape",
    "draw_codes",
    "extend",
    "mean_cosines",
    "pack_codes",
    "read_codes",
    "read_new_identities",
    "read_shape",
    "read_vectors",
    "spherical_kmeans",
    "sum_by_prefix",
    "tokenize",
    "unpack_codes",
    "write_code_table",
]

if TYPE_CHECKING:
    from gif_core.tokenization.code_index import CodeIndex
    from gif_core.tokenization.code_table import check_identities, read_codes, read_shape, write_code_table
    from gif_core.tokenization.codes import (
        Codes,
        CodeShape,
        Vectors,
        check_codes,
        code_shape,
        draw_codes,
        pack_codes,
        unpack_codes,
    )
    from gif_core.tokenization.extension import extend
    from gif_core.tokenization.hierarchical_kmeans import tokenize
    from gif_core.tokenization.kmeans import assign_bounded, bounded_kmeans, spherical_kmeans
    from gif_core.tokenization.new_identities import append_identities, read_new_identities, read_vectors
    from gif_core.tokenization.prefix_sums import mean_cosines, sum_by_prefix
    from gif_core.tokenization.quality import code_quality
    from gif_core.tokenization.token_alignment import align_tokens
else:
    __getattr__ = lazy_imports(__name__)
