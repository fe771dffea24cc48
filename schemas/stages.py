"""The seven stages: their order, their inputs, and the versions of their results."""

from typing import Final, Literal, get_args

StageName = Literal["ingestion", "embedding", "separation", "tokenization", "training", "evaluation", "reporting"]

STAGES: Final[tuple[StageName, ...]] = get_args(StageName)

INPUTS: Final[dict[StageName, tuple[StageName, ...]]] = {
    "ingestion": (),
    "embedding": ("ingestion",),
    "separation": ("embedding",),
    "tokenization": ("ingestion", "separation"),
    "training": ("ingestion", "separation", "tokenization"),
    "evaluation": ("ingestion", "embedding", "separation", "tokenization", "training"),
    "reporting": ("ingestion", "embedding", "separation", "tokenization", "training", "evaluation"),
}

VERSIONS: Final[dict[StageName, int]] = {
    "ingestion": 2,
    "embedding": 2,
    "separation": 2,
    "tokenization": 4,
    "training": 6,
    "evaluation": 7,
    "reporting": 8,
}
"""Part of every artifact's key: increment a stage's version when its code produces different results or files."""

SEEDED: Final[frozenset[StageName]] = frozenset({"separation", "tokenization", "training"})
"""The stages that use the run's seed. Datasets and evaluation sets have their own seeds, so that runs with different
seeds are compared on the same data."""
