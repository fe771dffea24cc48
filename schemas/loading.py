"""Build a checked `RunConfig` from a preset, a YAML file or a dictionary, and from `--set` overrides."""

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from schemas.addresses import hide_credentials
from schemas.errors import GifError
from schemas.evaluation import SET_KINDS
from schemas.ingestion import SOURCE_KINDS
from schemas.presets import PRESETS, merge
from schemas.run import RunConfig

ConfigSource = RunConfig | dict[str, Any] | str
KINDS = {*SOURCE_KINDS, *SET_KINDS}


class ConfigError(GifError, ValueError):
    """The configuration is invalid. The message names the field, the value and what is allowed."""


def load_config(source: ConfigSource = "demo", overrides: list[str] | None = None) -> RunConfig:
    """Load a preset by name, a YAML file by path, or a dictionary, and apply overrides `stage.field=value`."""
    table = _read_table(source)
    try:
        for override in overrides or []:
            table = merge(table, _parse_override(override, RunConfig.model_validate(table)))
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def _read_table(source: ConfigSource) -> dict[str, Any]:
    if isinstance(source, RunConfig):
        return source.model_dump(mode="json", exclude_unset=True)
    if isinstance(source, dict):
        return source
    if source in PRESETS:
        return {"preset": source}
    return _read_file(Path(source))


def _read_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{path} is neither a file nor a preset; presets are: {', '.join(PRESETS)}")
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a YAML file: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold a table of settings such as 'training:', not {table!r}")
    return table


def _parse_override(override: str, current: RunConfig) -> dict[str, Any]:
    path, separator, text = override.partition("=")
    if not separator or not all(path.split(".")):
        raise ConfigError(f"--set takes stage.field=value, for instance tokenization.length=4, not {override!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    table: dict[str, Any] = _nest(path.split("."), value, current.model_dump(mode="json"))
    return table


def _nest(path: list[str], value: Any, current: Any) -> Any:
    """The smallest table that changes the setting at `path`; lists are repeated whole with one item changed."""
    if not path:
        return value
    name, *rest = path
    if isinstance(current, list):
        if not name.isdigit() or int(name) >= len(current):
            raise ConfigError(f"{name!r} is not a position in a list of {len(current)}")
        changed = list(current)
        old = current[int(name)]
        new = _nest(rest, value, old)
        changed[int(name)] = merge(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        return changed
    return {name: _nest(rest, value, current.get(name) if isinstance(current, dict) else None)}


def explain(error: ValidationError) -> str:
    """One line per error: the field, the given value, and what is allowed."""
    details = error.errors()
    places = [detail["loc"] for detail in details]
    innermost = [d for d in details if not any(_is_inside(place, d["loc"]) for place in places)]
    return hide_credentials("\n".join(_explain_one(detail) for detail in innermost))


def _is_inside(place: tuple[Any, ...], table: tuple[Any, ...]) -> bool:
    return len(place) > len(table) > 0 and place[: len(table)] == table


def _explain_one(detail: Any) -> str:
    path = [str(part) for part in _without_kinds(detail["loc"])]
    field = ".".join(path) or "configuration"
    if "credentials" in detail["msg"]:
        return f"{field}: {detail['msg'].removeprefix('Value error, ')}"
    if detail["type"] == "extra_forbidden":
        known = _fields_at(path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{field} = {detail['input']!r}: there is no such setting; {hint}known: {', '.join(known)}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{field} = {detail['input']!r}: {message[0].lower()}{message[1:]}"


def _without_kinds(place: tuple[Any, ...]) -> list[Any]:
    """The path of a setting, without the kind that pydantic inserts after the position in a list."""
    before = (None, *place)
    return [part for last, part in zip(before, place, strict=False) if not (isinstance(last, int) and part in KINDS)]


def _fields_at(path: list[str]) -> list[str]:
    """Names of the settings in the table at `path`, from the JSON schema."""
    schema = RunConfig.model_json_schema()
    tables = [schema]
    for part in path:
        tables = [found for table in tables for found in _children(table, part, schema)]
    return sorted({name for table in tables for name in table.get("properties", {})})


def _children(table: dict[str, Any], part: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    child = table.get("items", {}) if part.isdigit() else table.get("properties", {}).get(part, {})
    options = child.get("oneOf") or child.get("anyOf") or child.get("allOf") or [child]
    return [schema["$defs"][option["$ref"].rsplit("/", 1)[-1]] if "$ref" in option else option for option in options]
