"""Embedding (Eq. 3): the vector of an identity is the mean of its faces' encoder features.

encoders/     Encoders: pretrained networks such as CLIP and DINO. One protocol, and one file for each library.
mean_vectors  The vectors of identities (Eq. 3): parts of the faces, their sums, and what is put together from them
part_jobs     A part of embedding as a job that any process can do
stage         The stage embedding: faces → `vectors.parquet`, one row per identity
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["CPU_BATCH", "Part", "PartSums", "Summary", "embed_part", "identity_vectors", "plan_parts", "vectors_of"]

if TYPE_CHECKING:
    from gif_core.embedding.mean_vectors import (
        CPU_BATCH,
        Part,
        PartSums,
        Summary,
        embed_part,
        identity_vectors,
        plan_parts,
        vectors_of,
    )
else:
    __getattr__ = lazy_imports(__name__)
