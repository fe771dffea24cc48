"""Settings of separation: spreading code vectors over the unit sphere (Eq. 4 to 6)."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen, Job


class SeparationConfig(Frozen):
    """Identity vectors → code vectors."""

    recipe: Literal["per_vector", "literal"] = "per_vector"
    """`per_vector`: the step of a code vector does not depend on the batch size, and the descent reaches uniformity.
    `literal`: Eq. 6 as printed, whose steps shrink with the batch size; it ignores `start_gap` and `pull`."""
    temperature: PositiveFloat = 2.0
    """Temperature t of the Gaussian potential (Eq. 4)."""
    start_gap: float | None = Field(default=0.1, gt=0)
    """Before the descent, remove the common mean and flatten the spectrum until the loss is within this gap of its
    uniform limit; null: start from the identity vectors unchanged."""
    pull: NonNegativeFloat = 0.3
    """Strength of the attraction of each vector to its 10 nearest neighbours at the start. It halves every 10 epochs,
    so any target gap is reached eventually. 0: no attraction."""
    learning_rate: PositiveFloat = 0.1
    """Step size of the descent (Eq. 6)."""
    epochs: NonNegativeInt = 1000
    """Most epochs; `target_gap` and `least_kept` may stop earlier. The transformation of `start_gap` counts as the
    first epoch. 0: use the encoder's identity vectors as code vectors."""
    batch_size: PositiveInt = 2048
    """Code vectors per step, over all processes."""
    target_gap: float | None = Field(default=0.01, gt=0)
    """Stop when the loss is within this gap of its uniform limit; null: run all epochs."""
    least_kept: float | None = Field(default=None, gt=0, lt=1)
    """Stop before the share of the 10 nearest neighbours that are preserved falls below this; null: no such limit."""
    dimension: PositiveInt | None = None
    """Dimensions of the code vectors, and so of the model's features. Identity vectors are first projected onto their
    leading principal directions; null: the dimensions of the encoder."""
    extends: str | None = Field(default=None, pattern=KEY_PATTERN)
    """Key of a separation to extend: its code vectors, those of the first identities, stay fixed and the others are
    placed among them; null: all code vectors move."""


class SeparationJob(Job):
    """Input of one separation process. Files are shared by the processes of a machine, the store by all of them."""

    config: SeparationConfig
    seed: int
    vectors: str
    """Safetensors file with the identity vectors as `vectors`."""
    result: str
    """Existing safetensors file of the same shape, to be filled with `code_vectors`."""
    store: str
    checkpoints: str
    """Folder of the checkpoints in the store."""
    together: bool = False
    """Whether processes of several machines share the work: the last checkpoint is then the result."""
    fixed: NonNegativeInt = 0
    """Number of leading rows that stay fixed."""
    checkpoint_seconds: NonNegativeFloat
    """Time between two checkpoints, in seconds."""
