"""Build a checked `RunConfig` from a preset, a YAML file or a dictionary, and from `--set` overrides."""

import difflib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.errors import GifError
from schemas.explaining import explain
from schemas.presets import MAIN_PRESETS, PRESETS, merge
from schemas.run import RunConfig
from schemas.safe_yaml import LONGEST, UnsafeYamlError, parse_yaml

ConfigSource = RunConfig | dict[str, Any] | str


class ConfigError(GifError, ValueError):
    """The configuration is invalid. The message names the field, the value and what is allowed."""


def load_config(source: ConfigSource = "demo", overrides: list[str] | None = None) -> RunConfig:
    """Load a preset by name, a YAML file by path, or a dictionary, and apply overrides `stage.field=value`."""
    table = _read_table(source)
    current = _fill_in(table, table)
    for override in overrides or []:
        change = _parse_override(override, current)
        table = merge(table, change)
        current = _fill_in(table, merge(current, change))
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def _fill_in(table: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """All settings of a table; `usual` as long as it is invalid, which a later override may mend."""
    try:
        return RunConfig.model_validate(table).model_dump(mode="json")
    except ValidationError:
        return usual


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
        near = difflib.get_close_matches(str(path).lower(), PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"{path} is neither a file nor a preset; {hint}presets are: {MAIN_PRESETS} "
            "and those of the paper, such as paper/demo ('gif run -h' lists all)"
        )
    try:
        with path.open("rb") as file:
            table = parse_yaml(file.read(LONGEST + 1).decode("utf-8"))
    except (UnsafeYamlError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a YAML file of settings: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold a table of settings such as 'training:', not {table!r}")
    return table


def _parse_override(override: str, current: dict[str, Any]) -> dict[str, Any]:
    path, separator, text = override.partition("=")
    if not separator or not all(path.split(".")):
        raise ConfigError(f"--set takes stage.field=value, for instance tokenization.length=4, not {override!r}")
    try:
        value = parse_yaml(text)
    except UnsafeYamlError:
        value = text
    table: dict[str, Any] = _nest(path.split("."), value, current)
    return table


def _nest(path: list[str], value: Any, current: Any) -> Any:
    """The smallest table that changes the setting at `path`; lists are repeated whole with one item changed."""
    if not path:
        return value
    name, *rest = path
    if isinstance(current, list):
        if name not in map(str, range(len(current))):
            raise ConfigError(f"{name!r} is not a position in a list of {len(current)}")
        changed = list(current)
        old = current[int(name)]
        new = _nest(rest, value, old)
        changed[int(name)] = merge(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        return changed
    return {name: _nest(rest, value, current.get(name) if isinstance(current, dict) else None)}
