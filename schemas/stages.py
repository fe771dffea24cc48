"""The seven stages: their order, what each reads, and the version of what each writes."""

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
    "tokenization": 3,
    "training": 3,
    "evaluation": 6,
    "reporting": 6,
}
"""Part of every artifact's key: raise a stage's number when its code gives other results or files."""

SEEDED: Final[frozenset[StageName]] = frozenset({"separation", "tokenization", "training"})
"""The stages that draw random numbers from the run's seed. A dataset or a set of pairs has a seed of its
own, so that three training seeds are compared on the same data."""
