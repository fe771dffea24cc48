"""Tokenization (Algorithm 1): code vectors become identity codes by capacity-bounded hierarchical k-means.

assignment           An assignment whose clusters have a capacity (the bound below Eq. 6): prices, then an exact repair
code_index           From identities to codes and back, for millions at a time
code_table           The identity-to-code table: one DuckDB file that anyone can query, and its codes as Parquet
codes                Identity codes: their shape (length l, vocab size v), their checks, and packing into integers
extension            Extension: free codes for new identities, near their neighbours; codes that are given never change
hierarchical_kmeans  Tokenization: code vectors to identity codes by capacity-bounded hierarchical k-means (Algorithm 1)
kmeans               Spherical k-means, plain and with a capacity for each cluster: one split of Algorithm 1
new_identities       Identities who come after a code table was made: their vectors and names, read from a file
prefix_sums          Sums and means of code vectors by the prefix of their code, or by any label, over vectors that m...
quality              How good a code table is: how full it is, what the capacity bound costs, and how much structure ...
token_alignment      Aligned tokens: one value of a token means a similar direction below every parent
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "DUCKDB_FILE",
    "PARQUET_FILE",
    "QUALITY_FILE",
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
    from gif_core.tokenization.code_table import (
        DUCKDB_FILE,
        PARQUET_FILE,
        check_identities,
        read_codes,
        read_shape,
        write_code_table,
    )
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
    from gif_core.tokenization.quality import QUALITY_FILE, code_quality
    from gif_core.tokenization.token_alignment import align_tokens
else:
    __getattr__ = lazy_imports(__name__)
