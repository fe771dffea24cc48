"""What a training head holds, computed: its parameters, and the memory of a step against the number of identities."""

# Letters: m identities, d dimensions, l tokens of v values, B images in a batch.

from dataclasses import dataclass
from typing import Final

from gif_core.tokenization import CodeShape, code_shape
from schemas.artifacts import Manifest
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

FLOAT_BYTES: Final = 4
MOMENTS: Final = {"sgd": 1, "adamw": 2}
"""Numbers that an optimizer keeps of each parameter."""
SAMPLE_RATE: Final = 0.1
"""Of PartialFC where a run has none of its own: the rate of insightface's published measurements."""


@dataclass(frozen=True)
class HeadSize:
    """A head's parameters, those of them that a step changes, and its logits for one image."""

    parameters: int
    in_a_step: int
    logits: int

    def step_bytes(self, config: TrainingConfig) -> int:
        """Memory at the peak of a step, all in fp32.

        Weights and moments, copies of both where the step has a sample of the rows, gradients, and the larger of the
        logits of a batch and the optimizer's copy of the gradients with weight decay.
        """
        each = 1 + MOMENTS[config.optimizer]
        sampled = self.in_a_step if self.in_a_step < self.parameters else 0
        passing = max(config.batch_size * self.logits, self.in_a_step)
        return FLOAT_BYTES * (each * (self.parameters + sampled) + self.in_a_step + passing)


def code_dimension(separation: Manifest, embedding: Manifest) -> int:
    """Length of the code vectors, and so d of the head: that of the encoder's unless separation was told another."""
    return int(separation.settings.get("dimension") or embedding.metrics["dimensions"])


def size_of_head(config: TrainingConfig, identities: int, shape: CodeShape, dim: int) -> HeadSize:
    """The size of the head called `config.head`."""
    if config.head == "gif":
        return size_of_tokens(config, shape, dim)
    return size_of_rows(identities, dim, config.sample_rate if config.head == "partial_fc" else 1.0)


def size_of_tokens(config: TrainingConfig, shape: CodeShape, dim: int) -> HeadSize:
    """L times `hidden_layers` of d·d + d, and v·d (Eq. 7), and the map; logits over v values and the negatives."""
    learned = shape.length * (config.hidden_layers * (dim * dim + dim) + shape.vocab_size * dim)
    learned += 2 * dim * config.code_map if config.negatives else 0
    return HeadSize(learned, learned, shape.length * shape.vocab_size + config.negatives)


def size_of_rows(identities: int, dim: int, sample_rate: float = 1.0) -> HeadSize:
    """A row of d for each identity (Eq. 1), of which a step takes a share."""
    rows = max(1, round(sample_rate * identities))
    return HeadSize(identities * dim, rows * dim, rows)


def memory_curves(
    config: TrainingConfig, tokenization: TokenizationConfig, dim: int, identities: list[int]
) -> dict[str, list[int]]:
    """Bytes of a step at each number of identities, for the three kinds of heads; codes have the shape they need."""
    rate = config.sample_rate if config.head == "partial_fc" else SAMPLE_RATE
    structured = tokenization.model_copy(update={"mode": "structured"})
    shapes = [code_shape(m, structured) for m in identities]
    return {
        "A row for each identity": [size_of_rows(m, dim).step_bytes(config) for m in identities],
        f"PartialFC, {rate:g} of the rows": [size_of_rows(m, dim, rate).step_bytes(config) for m in identities],
        "Identity codes (GIF)": [size_of_tokens(config, shape, dim).step_bytes(config) for shape in shapes],
    }
