"""Local files of weights. Imports nothing heavy, because keys of artifacts need it."""

from pathlib import Path
from typing import Final

from gif_core.artifacts import file_sha256
from schemas.embedding import EmbeddingConfig

RANDOM: Final = "random"
SHIPPED: Final = {("tiny-clip", "synthetic"): Path(__file__).with_name("tiny-clip.safetensors")}
"""Checkpoints that are part of the project."""


def weights_file(config: EmbeddingConfig) -> Path | None:
    """Return the local file with the weights; None if they are a tag of a library or random."""
    shipped = SHIPPED.get((config.model, config.pretrained)) if config.encoder == "open_clip" else None
    given = Path(config.pretrained).expanduser()
    return shipped or (given if given.is_file() else None)


def given_file(config: EmbeddingConfig) -> Path | None:
    """Return the local file that the settings name; None also for what the project ships."""
    path = weights_file(config)
    return path if path == Path(config.pretrained).expanduser() else None


def describe_weights(config: EmbeddingConfig) -> str:
    """What keys say of the weights: the digest of a local file, or the library's tag."""
    path = weights_file(config)
    return f"sha256:{file_sha256(path)}" if path else config.pretrained


def with_whole_path(config: EmbeddingConfig) -> EmbeddingConfig:
    """Make the path of the weights absolute, since workers may run in another folder."""
    path = given_file(config)
    return config.model_copy(update={"pretrained": str(path.resolve())}) if path else config
