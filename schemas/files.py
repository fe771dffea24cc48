"""Names of the files in artifacts, by the stage that writes them."""

from typing import Final, Literal

Split = Literal["identities", "held_out"]

# ingestion
IDENTITIES_FILE: Final = "identities.parquet"
"""Identities to train on: identity id, label, source, number of images. Their faces are in `identities-*.arrow`."""
HELD_OUT_FILE: Final = "held_out.parquet"
"""Held-out identities, with the same columns. Their faces are in `held_out-*.arrow`."""
QUARANTINE_FILE: Final = "quarantine.parquet"
"""Records that cannot be used, with the reason."""
SOURCES_FILE: Final = "sources.parquet"
"""Files of the sources, by which an incremental ingestion finds what is new."""

# embedding
VECTORS_FILE: Final = "vectors.parquet"
"""Identity vectors (Eq. 3)."""
LEAST_COHESIVE_FILE: Final = "least_cohesive.parquet"
"""Identities whose images agree least with each other."""

# separation
CODE_VECTORS_FILE: Final = "code_vectors.safetensors"
"""Code vectors, as the matrix `code_vectors`; in a training, those that have learned."""
CURVE_FILE: Final = "curve.parquet"
"""Loss and neighbourhood metrics by epoch."""
DISTANCES_FILE: Final = "distances.parquet"
"""Distances between identity vectors and between code vectors."""

# tokenization
CODES_DUCKDB_FILE: Final = "codes.duckdb"
"""The code table, indexed for lookups."""
CODES_FILE: Final = "codes.parquet"
"""The code table."""
CODE_QUALITY_FILE: Final = "quality.parquet"
"""Quality metrics of the codes."""

# training
MODEL_FILE: Final = "model.json"
"""Description of the model: backbone, head and dimensions."""
BACKBONE_FILE: Final = "backbone.safetensors"
"""Weights of the backbone."""
HEAD_FILE: Final = "head.safetensors"
"""Weights of the head."""

# training and evaluation
METRICS_FILE: Final = "metrics.parquet"
"""Metrics by stage, step and name."""

# evaluation
SCORES_FILE: Final = "scores.json"
"""Scores and thresholds of every set."""
SCORE_TABLE_FILE: Final = "scores.parquet"
"""Scores, one metric per row."""
IDENTIFICATION_FILE: Final = "identification.json"
"""Results and thresholds of identification by codes."""
ROC_FILE: Final = "roc.parquet"
"""ROC curves."""
CMC_FILE: Final = "cmc.parquet"
"""CMC curves."""
ERRORS_FILE: Final = "errors.parquet"
"""The worst errors of each pair set."""
PAIR_SCORES_FILE: Final = "pair_scores.parquet"
"""Similarity of each pair, for comparing models by bootstrap."""
SEARCHES_FILE: Final = "searches.parquet"
"""Result of each probe, for comparing models by bootstrap."""

# reporting
REPORT_FILE: Final = "report.html"
"""The report page."""

# any stage
MANIFEST_FILE: Final = "manifest.json"
"""The manifest of an artifact; written last."""
PARTS_FILE: Final = "parts.json"
"""Names of the parts from which an artifact was assembled."""
WORK_FOLDER: Final = ".work"
"""Files that a draft needs on the way; hidden files and folders are not published."""


def identity_table(split: Split) -> str:
    """The table of identities of a split."""
    return IDENTITIES_FILE if split == "identities" else HELD_OUT_FILE
