"""Checks of an encoder's name and weights that need none of the libraries: they are asked before a run begins."""

import difflib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gif_core.embedding.encoders.files import RANDOM, SHIPPED, weights_file
from schemas.embedding import EmbeddingConfig
from schemas.errors import GifError

OWN: Final = "tiny-clip"
"""The model that ships with the project; open_clip builds it."""
FILES: Final = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


class UnknownEncoderError(GifError, ValueError):
    """No library has the model, or there is no such file of weights."""


def check_encoder(config: EmbeddingConfig) -> None:
    """Raise UnknownEncoderError for a model that open_clip does not have, or a file of weights that does not exist."""
    if config.encoder == "open_clip":
        check_name(config.model, open_clip_models(), "open_clip")
    looks_like_file = "/" in config.pretrained or config.pretrained.lower().endswith(FILES)
    if looks_like_file and weights_file(config) is None:
        raise UnknownEncoderError(f"embedding.pretrained = {config.pretrained!r}: there is no such file of weights")
    tags = [tag for model, tag in SHIPPED if model == config.model]
    if config.model == OWN and config.pretrained not in (RANDOM, *tags) and weights_file(config) is None:
        raise UnknownEncoderError(
            f"embedding.pretrained = {config.pretrained!r}: {OWN} has the weights {', '.join(tags)} and {RANDOM}"
        )


def check_name(name: str, known: list[str], library: str) -> None:
    """Raise UnknownEncoderError for an unknown model, with the nearest known names."""
    if name in known or not known:
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or difflib.get_close_matches(
        name.lower(), known, n=3, cutoff=0.4
    )
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {', '.join(known[:20])}, …"
    raise UnknownEncoderError(f"embedding.model = {name!r}: {library} has no such model; {hint}")


def open_clip_models() -> list[str]:
    """Names of open_clip's architectures and of our own, read from the package's files; empty without the package."""
    spec = find_spec("open_clip")
    if spec is None or spec.origin is None:
        return []
    return sorted({OWN, *(path.stem for path in (Path(spec.origin).parent / "model_configs").glob("*.json"))})
