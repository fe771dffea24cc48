"""Where weights lie. Nothing heavy is imported here: keys of artifacts need it too."""

from pathlib import Path
from typing import Final

from schemas.embedding import EmbeddingConfig

RANDOM: Final = "random"
SHIPPED: Final = {("tiny-clip", "synthetic"): Path(__file__).with_name("tiny-clip.safetensors")}
"""Checkpoints that come with the project."""


def weights_file(config: EmbeddingConfig) -> Path | None:
    """The local file that holds the weights; none when they are a library's tag, or random."""
    shipped = SHIPPED.get((config.model, config.pretrained)) if config.encoder == "open_clip" else None
    given = Path(config.pretrained).expanduser()
    return shipped or (given if given.is_file() else None)
