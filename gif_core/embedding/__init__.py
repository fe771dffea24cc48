"""Embedding (Eq. 3): which vector describes an identity? The mean of its faces' encoder features.

encoders/     Pretrained encoders such as CLIP and DINO: one protocol, one file per library
mean_vectors  Identity vectors (Eq. 3): feature sums of parts of the faces, and their normalised totals
part_jobs     A part of embedding as a job for any process
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
