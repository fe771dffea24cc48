"""Parameters and memory of training heads, computed from the number of identities.

Symbols: m identities, d dimensions, l tokens of v values.
"""

from dataclasses import dataclass
from typing import Final

from gif_core.tokenization import CodeShape, code_shape
from schemas.artifacts import Manifest
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

FLOAT_BYTES: Final = 4
MOMENTS: Final = {"sgd": 1, "adamw": 2}
"""Numbers that an optimizer stores per parameter."""
SAMPLE_RATE: Final = 0.1
"""Sample rate of PartialFC in the curves of other heads: that of insightface's published measurements."""


@dataclass(frozen=True)
class HeadSize:
    """The parameters of a head, those that a step updates, and the logits of one image."""

    parameters: int
    in_a_step: int
    logits: int

    def step_bytes(self, config: TrainingConfig) -> int:
        """Return the peak memory of a step in fp32.

        Weights and moments, copies of both for sampled rows, gradients, and the larger of the logits of a batch and
        the optimizer's copy of the gradients with weight decay.
        """
        each = 1 + MOMENTS[config.optimizer]
        sampled = self.in_a_step if self.in_a_step < self.parameters else 0
        passing = max(config.batch_size * self.logits, self.in_a_step)
        return FLOAT_BYTES * (each * (self.parameters + sampled) + self.in_a_step + passing)


def code_dimension(separation: Manifest, embedding: Manifest) -> int:
    """Return the dimension of the code vectors, d of the head: the encoder's unless `separation.dimension` is set."""
    return int(separation.settings.get("dimension") or embedding.metrics["dimensions"])


def size_of_head(config: TrainingConfig, identities: int, shape: CodeShape, dim: int) -> HeadSize:
    """Return the size of the head `config.head`."""
    if config.head == "gif":
        return size_of_tokens(config, shape, dim)
    if config.head == "virtual_fc":
        return size_of_rows(config.anchors_of_head(identities), dim)
    if config.head in ("dcq", "f2c"):
        return HeadSize(0, 0, config.queue_size_of_head(identities))
    return size_of_rows(identities, dim, config.sample_rate_of_head)


def size_of_tokens(config: TrainingConfig, shape: CodeShape, dim: int) -> HeadSize:
    """Size of a GIF head on the device: l times (`hidden_layers` of d·d + d, and v·d) (Eq. 7), and the shared map.

    Living code vectors are not there; a step has its rows and their gradient.
    """
    learned = shape.length * (config.hidden_layers * (dim * dim + dim) + shape.vocab_size * dim)
    learned += 2 * dim * config.map_width if config.maps_code_vectors(shape.capacity(0)) else 0
    rows = config.batch_size + config.negatives if config.negatives else 0
    lent = 2 * rows * dim if config.code_vectors == "living" else 0
    return HeadSize(learned, learned + lent, shape.length * shape.vocab_size + rows)


def size_of_rows(identities: int, dim: int, sample_rate: float = 1.0) -> HeadSize:
    """Size of a classifier with a row of d per identity (Eq. 1), of which a step uses the share `sample_rate`."""
    rows = max(1, round(sample_rate * identities))
    return HeadSize(identities * dim, rows * dim, rows)


def memory_curves(
    config: TrainingConfig, tokenization: TokenizationConfig, dim: int, identities: list[int]
) -> dict[str, list[int]]:
    """Return the bytes of a step at each number of identities, for three kinds of heads; code shapes grow with m."""
    rate = config.sample_rate_of_head if config.sample_rate_of_head < 1 else SAMPLE_RATE
    structured = tokenization.model_copy(update={"mode": "structured"})
    shapes = [code_shape(m, structured) for m in identities]
    return {
        "A row per identity": [size_of_rows(m, dim).step_bytes(config) for m in identities],
        f"PartialFC, {rate:g} of the rows": [size_of_rows(m, dim, rate).step_bytes(config) for m in identities],
        "Identity codes (GIF)": [size_of_tokens(config, shape, dim).step_bytes(config) for shape in shapes],
    }
