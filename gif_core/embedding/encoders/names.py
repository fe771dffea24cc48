"""Checks of an encoder's name and weights that need none of the libraries: they are asked before a run begins."""

import ast
import difflib
import re
from collections.abc import Iterator
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
    """Raise UnknownEncoderError for a model or weights that the library does not have, or a file that is not there."""
    if config.encoder == "open_clip":
        check_name(config.model, open_clip_models(), "open_clip")
    elif config.encoder == "timm":
        check_name(config.model, timm_models(), "timm")
    looks_like_file = "/" in config.pretrained or config.pretrained.lower().endswith(FILES)
    if looks_like_file and weights_file(config) is None:
        raise UnknownEncoderError(f"embedding.pretrained = {config.pretrained!r}: there is no such file of weights")
    tags = [tag for model, tag in SHIPPED if model == config.model]
    if config.model == OWN and config.pretrained not in (RANDOM, *tags) and weights_file(config) is None:
        raise UnknownEncoderError(
            f"embedding.pretrained = {config.pretrained!r}: {OWN} has the weights {', '.join(tags)} and {RANDOM}"
        )
    if config.encoder == "open_clip" and weights_file(config) is None:
        check_weights(config)


def check_weights(config: EmbeddingConfig) -> None:
    """Raise UnknownEncoderError for weights that open_clip does not have of a model, with the nearest it has."""
    known = open_clip_weights().get(config.model.removesuffix("-quickgelu"), [])
    if not known or config.pretrained in (RANDOM, *known):
        return
    near = difflib.get_close_matches(config.pretrained.lower().replace("-", "_"), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {', '.join(known)}"
    raise UnknownEncoderError(
        f"embedding.pretrained = {config.pretrained!r}: open_clip has no such weights of {config.model}, and it is no "
        f"file; {hint}"
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


def timm_models() -> list[str]:
    """Names of timm's models, also earlier ones, found in the package's source: importing it takes seconds."""
    spec = find_spec("timm")
    if spec is None or spec.origin is None:
        return []
    files = sorted((Path(spec.origin).parent / "models").glob("*.py"))
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    renamed = "".join(re.findall(r"^register_model_deprecations\((.*?)^\}\)", source, re.MULTILINE | re.DOTALL))
    models = re.findall(r"^@register_model\n(?:@.*\n)*def (\w+)\(", source, re.MULTILINE)
    return sorted({*models, *re.findall(r"['\"](\w+)['\"]\s*:", renamed)})


def open_clip_weights() -> dict[str, list[str]]:
    """Model → tags of its weights, from the tables in open_clip's source; empty without the package."""
    spec = find_spec("open_clip")
    if spec is None or spec.origin is None:
        return {}
    source = ast.parse((Path(spec.origin).parent / "pretrained.py").read_text(encoding="utf-8"))
    tables: dict[str, list[str]] = {}
    for node in source.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if isinstance(node.value, ast.Call):
            tables[node.targets[0].id] = [str(each.arg) for each in node.value.keywords]
        elif node.targets[0].id == "_PRETRAINED" and isinstance(node.value, ast.Dict):
            return dict(_named_tables(node.value, tables))
    return {}


def _named_tables(models: ast.Dict, tables: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """The table that each model names, or that is written in its place."""
    for name, table in zip(models.keys, models.values, strict=True):
        if isinstance(name, ast.Constant) and isinstance(table, ast.Name):
            yield str(name.value), tables.get(table.id, [])
        elif isinstance(name, ast.Constant) and isinstance(table, ast.Call):
            yield str(name.value), [str(each.arg) for each in table.keywords]
