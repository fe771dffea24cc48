"""The page of settings, from the pydantic models and their attribute docstrings."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from markdown_pieces import code, table
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.presets import BASES, PRESETS
from schemas.retraining import RetrainingPolicy
from schemas.run import RunConfig

PROJECT = Path(__file__).parents[2]
LAYERS = ("flows", "tasks", "gif_core", "schemas")
INTRODUCTION = """# Settings

Generated from the models in `schemas/`. A run is one YAML file with these sections; `--set section.field=value` changes
one setting on the command line, and a deployment takes the same table as its parameter `config`. A misspelt name is an
error that lists the known ones. `gif config show run.yaml` prints every setting of a file with its value,
`gif config validate run.yaml` checks it, `gif config schema` prints the JSON schema.

Settings of `execution` and `store` change no result and are in no artifact's key.
"""
TOP = ("preset", "seed", "store", "data")
HEAD = ("setting", "type", "default", "meaning")
FACTORIES = {
    "workers": "all cores",
    "store": "`$GIF_STORE`, else `artifacts`",
    "data": "`$GIF_DATA`, else `data`",
    "timeouts": "`{}`",
}
"""What defaults that are computed come to."""
VARIABLES = {
    "GIF_STORE": "Address of the store, for commands and configurations that name none.",
    "GIF_DATA": "Folder of datasets and evaluation sets, for configurations that name none.",
    "GIF_FOLDER": "Folder in which the runs of a worker work (that of `gif deploy` if it is there, else `~/gif`).",
    "GIF_TOKEN": "The token that requests to `gif serve` must carry; needed unless it listens on loopback.",
    "GIF_STORE_PATIENCE": "Seconds to wait for a store that does not answer (300).",
    "GIF_S3_BLOCK": "Name of the Prefect Secret block that holds the credentials of object storage.",
    "GIF_CACHE": "Folder of local copies of a remote store's files (`~/.cache/gif`).",
    "GIF_CACHE_SIZE": "How much that folder may hold, such as `200GB` (50 GB or 80 % of what is free, the less).",
    "GIF_LOG": "A file to which every line of the log is also written, as JSON with run, stage and artifact.",
    "GIF_TRACEBACK": "Set: a command that fails prints the traceback.",
}
INTERNAL = {"GIF_FAMILY", "GIF_STARTED_BY"}
"""Marks that processes of a run give to those they start."""


def page() -> str:
    """The whole page."""
    sections = [(name, field) for name, field in RunConfig.model_fields.items() if name not in TOP]
    parts = [INTRODUCTION, "## The run\n", _table({name: RunConfig.model_fields[name] for name in TOP}, "")]
    for name, field in sections:
        parts += [f"## {name}\n", *_model(_models(field.annotation)[0], f"{name}.")]
    parts += ["## Retraining policy\n", "The file of `gif retrain --policy`, and the parameter `policy` of the flow.\n"]
    parts += [*_model(RetrainingPolicy, ""), _presets(), _variables()]
    return "\n".join(part for part in parts if part)


def _model(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """The doc of a model, its settings, and the models inside it."""
    yield f"{inspect.getdoc(model)}\n"
    yield _table(model.model_fields, prefix)
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if len(inner) == 1 and get_origin(field.annotation) is not tuple:
            yield f"### {prefix or 'policy.'}{name}\n"
            yield f"{field.description}\n" if field.description else ""
            yield from _model(inner[0], f"{prefix}{name}.")
        else:
            yield from _kinds(f"{prefix}{name}", inner)


def _kinds(name: str, models: list[type[BaseModel]]) -> Iterator[str]:
    """Items of a list of tables: a table of settings for each kind."""
    if models:
        yield f"### {name}\n"
        yield "Each item is one of these, chosen by its `kind`.\n"
    for model in models:
        kinds = " or ".join(map(str, get_args(model.model_fields["kind"].annotation)))
        yield f"#### kind: {kinds}\n"
        yield f"{inspect.getdoc(model)}\n"
        yield _table({key: field for key, field in model.model_fields.items() if key != "kind"}, "")


def _table(fields: dict[str, FieldInfo], prefix: str) -> str:
    rows = (
        [code(f"{prefix}{name}"), _type(field), _default(name, field), field.description or ""]
        for name, field in fields.items()
        if not (_models(field.annotation) and get_origin(field.annotation) is not tuple)
    )
    return table(HEAD, rows)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _type(field: FieldInfo) -> str:
    limits = [text for each in field.metadata if (text := _limit(each))]
    return ", ".join([_name(field.annotation), *limits])


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(code(value) for value in get_args(annotation))
    if origin is Annotated:
        inner, *about = get_args(annotation)
        return " ".join([_name(inner), *(text for each in about if (text := _limit(each)))])
    if origin in (Union, UnionType):
        return " or ".join("null" if inner is type(None) else _name(inner) for inner in get_args(annotation))
    if origin is tuple:
        return "list of " + _item(get_args(annotation))
    if origin is dict:
        return "table"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Path": "path"}.get(
        getattr(annotation, "__name__", ""), "text"
    )


def _item(inner: tuple[Any, ...]) -> str:
    if _models(inner[0]):
        return "tables"
    return _name(inner[0]) if inner[-1] is Ellipsis else f"{len(inner)} numbers"


def _limit(about: Any) -> str:
    if isinstance(about, FieldInfo):
        return ", ".join(text for each in about.metadata if (text := _limit(each)))
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [f"{sign} {getattr(about, name)}" for name, sign in signs.items() if getattr(about, name, None) is not None]
    return " ".join(found)


def _default(name: str, field: FieldInfo) -> str:
    if field.default_factory is not None:
        return FACTORIES[name]
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, tuple):
        if any(isinstance(each, BaseModel) for each in value):
            return code("[" + ", ".join(f"{{kind: {each.kind}}}" for each in value) + "]")
        value = list(value)
    return code(yaml.safe_dump(value, default_flow_style=True, width=200).removesuffix("\n...\n").strip())


def _presets() -> str:
    texts = [f'??? note "{name}"\n\n    ```yaml\n{_preset(name)}    ```\n' for name in (*PRESETS, *BASES)]
    return "\n".join(
        [
            "## Presets\n",
            "Starting points: `preset: NAME` in a file, or `--preset NAME`. A preset builds on those that it names.\n",
            *texts,
        ]
    )


def _preset(name: str) -> str:
    lines = (PROJECT / "schemas/presets" / f"{name}.yaml").read_text("utf-8").splitlines()
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


def _variables() -> str:
    code_ = "".join(path.read_text("utf-8") for layer in LAYERS for path in (PROJECT / layer).rglob("*.py"))
    found = set(re.findall(r"\bGIF_[A-Z0-9_]+\b", code_)) - INTERNAL
    if found != set(VARIABLES):
        raise ValueError(
            f"environment variables that docs/generators/settings.py does not describe: {found ^ set(VARIABLES)}"
        )
    rows = ([code(name), VARIABLES[name]] for name in sorted(found))
    return "## Environment variables\n\n" + table(("variable", "meaning"), rows)
