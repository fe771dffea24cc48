"""Settings of separation: how code vectors are spread over the sphere (Eq. 4 to 6)."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.artifacts import KEY_PATTERN
from schemas.base import Frozen


class SeparationConfig(Frozen):
    """Identity vectors → code vectors."""

    recipe: Literal["per_vector", "literal"] = "per_vector"
    """`per_vector`: the step of a code vector does not depend on the batch size and reaches uniformity;
    `literal`: Eq. 6 as printed, whose steps shrink with the batch, without `start_gap` and `pull`."""
    temperature: PositiveFloat = 2.0
    """t of the Gaussian potential."""
    start_gap: float | None = Field(default=0.1, gt=0)
    """Before the descent the common mean is removed and the spectrum made as much flatter as brings the loss this
    close to its uniform limit; null: the descent starts from the vectors as they are."""
    pull: NonNegativeFloat = 0.3
    """How strongly a vector is drawn to the 10 that were nearest to it at the start; it halves every 10 epochs, so
    that any gap is reached in the end. 0: not at all."""
    learning_rate: PositiveFloat = 0.1
    epochs: NonNegativeInt = 1000
    """At the most; `target_gap` and `least_kept` may end it earlier. What `start_gap` does counts as the first. 0: the
    identity vectors as the encoder gives them."""
    batch_size: PositiveInt = 2048
    target_gap: float | None = Field(default=0.01, gt=0)
    """Stop when the loss is this close to its uniform limit; null: run all epochs."""
    least_kept: float | None = Field(default=None, gt=0, lt=1)
    """Stop before less than this share of the 10 nearest neighbours is kept; null: whatever it costs."""
    dimension: PositiveInt | None = None
    """Dimensions of the code vectors, and so of the network's features: identity vectors are first brought into the
    subspace of so many that keeps the most of them; null: as many as the encoder's vectors have."""
    extends: str | None = Field(default=None, pattern=KEY_PATTERN)
    """Key of a separation whose code vectors stay as they are: those of the first identities; the others are
    placed among them; null: all identities moves."""


class SeparationJob(Frozen):
    """What a process that separates vectors is told; files are shared by all processes of the job."""

    config: SeparationConfig
    seed: int
    device: str
    vectors: str
    """Safetensors file with the identity vectors, `vectors`."""
    result: str
    """Safetensors file to fill, `code_vectors`; it is there already, and of the same shape."""
    checkpoints: str
    """Folder of the run's state."""
    fixed: NonNegativeInt = 0
    """Rows, from the first on, that stay where they are."""
    checkpoint_seconds: NonNegativeFloat = 60.0
