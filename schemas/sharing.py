"""A model handed to others: the record `config.json` in its folder."""

from datetime import datetime
from typing import Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from schemas.artifacts import MadeFrom, StoredFile
from schemas.base import Stored
from schemas.stages import StageName
from schemas.training import BackboneName, HeadName

CONFIG_FILE: Final = "config.json"
"""The record; the hub counts downloads by this name."""
WEIGHTS_FILE: Final = "model.safetensors"
"""Weights of the backbone."""
CARD_FILE: Final = "README.md"
"""The model card, which may be edited."""
UNKNOWN_LICENCE: Final = "unknown"
LARGEST_RECORD: Final = 2**20
"""Bytes of a record or a card, which has a few thousand."""
LARGEST_WEIGHTS: Final = 8 * 2**30
"""Bytes of the weights: 2 billion parameters, thirty times the largest backbone."""
LICENCE_PATTERN: Final = r"^[\w.+-]{1,64}$"
"""An identifier such as mit or cc-by-nc-4.0."""


class SharedData(Stored):
    """What a model was trained on, without names and paths."""

    sources: tuple[str, ...] = ()
    """Kinds of the sources; synthetic ones are drawn faces."""
    identities: NonNegativeInt | None = None
    images: NonNegativeInt | None = None
    held_out: NonNegativeInt | None = None
    """Identities kept aside for verification."""


class SharedModel(Stored):
    """What a receiver needs to know: the network, its files with their digests, and where they come from."""

    format: Literal[1] = 1
    model_type: Literal["gif"] = "gif"
    backbone: BackboneName
    embedding_dim: PositiveInt = Field(le=8192)
    head: HeadName = "gif"
    groups: PositiveInt = Field(default=32, le=4096)
    """Groups of GroupFace; other networks have none."""
    license: str = Field(default=UNKNOWN_LICENCE, pattern=LICENCE_PATTERN)
    data: SharedData = SharedData()
    training: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    """The main settings of its training."""
    code_version: str = ""
    created_at: datetime
    lineage: dict[StageName, MadeFrom] = Field(default_factory=dict)
    """Keys and digests of the artifacts behind it, in the store it comes from."""
    files: tuple[StoredFile, ...]


class Origin(Stored):
    """Where a model was pulled from."""

    repository: str
    """Its id on the hub."""
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    """The commit that its branch or tag meant at that time."""

    def __str__(self) -> str:
        """For people."""
        return f"{self.repository}, commit {self.commit}"


class SharedSet(Stored):
    """What is read of a set in the scores of a model: numbers and words, no deeper."""

    kind: str = Field(max_length=100)
    protocol: str = Field(max_length=100)
    flags: dict[str, bool | int | float | str]
    system_flags: dict[str, dict[str, bool | int | float | str]] = Field(default_factory=dict)
    pairs: PositiveInt | None = None
    systems: dict[str, dict[str, float]]


class SharedScores(Stored):
    """`scores.json` beside a shared model."""

    sets: dict[str, SharedSet]
