"""Validation errors in the words of the configuration: the field, the value, and what is allowed there."""

import difflib
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from schemas.addresses import hide_credentials
from schemas.run import RunConfig

LONGEST_VALUE: Final = 200
"""Characters of a value that a message repeats."""
WORDS: Final = {
    "model_type": "must be a table of settings",
    "model_attributes_type": "must be a table of settings with a 'kind'",
    "dict_type": "must be a table of settings",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "must have at least one item",
    "missing": "this setting is required",
    "invalid_key": "names of settings are text",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text; put it in quotes",
    "string_too_short": "must not be empty",
    "string_unicode": "must be text that can be written as UTF-8",
}
"""What pydantic's types of errors mean to whoever writes a configuration."""


Tables = list[dict[str, Any]]


def explain(error: ValidationError, schema: dict[str, Any] | None = None) -> str:
    """One line per error: the field, the given value, and what is allowed."""
    details = error.errors()
    places = [detail["loc"] for detail in details]
    innermost = [detail for detail in details if not any(_is_inside(place, detail["loc"]) for place in places)]
    known = schema or _run_schema()
    return hide_credentials("\n".join(_explain_one(detail, known) for detail in innermost))


@cache
def _run_schema() -> dict[str, Any]:
    return RunConfig.model_json_schema()


def _is_inside(place: tuple[Any, ...], table: tuple[Any, ...]) -> bool:
    return len(place) > len(table) > 0 and place[: len(table)] == table


def _explain_one(detail: Any, schema: dict[str, Any]) -> str:
    path, inside, at = _follow(detail["loc"], schema)
    field = ".".join(path) or "configuration"
    if "credentials" in detail["msg"]:
        return f"{field}: {detail['msg'].removeprefix('Value error, ')}"
    if detail["type"] == "missing":
        return f"{field}: {WORDS['missing']}"
    value = f"{detail['input']!r}"
    shown = value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}…"
    if detail["type"] == "extra_forbidden":
        return f"{field} = {shown}: there is no such setting; {_known(path[-1], inside, schema)}"
    return f"{field} = {shown}: {_reason(detail, at)}"


def _known(name: str, inside: Tables, schema: dict[str, Any]) -> str:
    """The settings of a table, and before them the nearest one to `name`, or that of another table with this name."""
    known = sorted({name for table in inside for name in table.get("properties", {})})
    elsewhere = [place for place in _places(schema) if place.rpartition(".")[2] == name]
    near = difflib.get_close_matches(name, known, n=1) or elsewhere
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}known: {', '.join(known)}"


def _places(schema: dict[str, Any]) -> list[str]:
    """All settings of a run and of its stages, as `--set` names them."""
    stages = {name: _children(schema, name, schema) for name in schema["properties"]}
    inner = [
        f"{name}.{field}"
        for name, tables in stages.items()
        for table in tables
        for field in table.get("properties", {})
    ]
    return [*schema["properties"], *inner]


def _reason(detail: Any, at: Tables) -> str:
    context = detail.get("ctx") or {}
    if detail["type"] == "union_tag_invalid":
        return _choice(str(context["tag"]), context["expected_tags"], "kind ")
    if detail["type"] == "union_tag_not_found":
        kinds = sorted({kind for table in at for kind in table.get("discriminator", {}).get("mapping", {})})
        return f"needs a kind: {', '.join(kinds)}"
    if detail["type"] == "literal_error":
        return _choice(str(detail["input"]), context["expected"], "")
    message = WORDS.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "must be").replace("String should match", "must match")
    return f"{message[0].lower()}{message[1:]}"


def _choice(given: str, expected: str, what: str) -> str:
    """The allowed values, and the nearest one to what was given."""
    options = [option.strip(" '") for option in expected.replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(given, options, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}{what}must be one of: {expected}"


def _follow(place: tuple[Any, ...], schema: dict[str, Any]) -> tuple[list[str], Tables, Tables]:
    """The path as it is written in a configuration, and the tables of the JSON schema around it and at it.

    Pydantic inserts the kind of a source or set after its position: it chooses the table and is not part of the path.
    """
    path: list[str] = []
    inside = at = [schema]
    for part in place:
        kinds = [table["discriminator"]["mapping"] for table in at if "discriminator" in table]
        chosen = [_resolve(kind[part], schema) for kind in kinds if part in kind]
        if chosen:
            at = chosen
            continue
        path.append(str(part))
        inside, at = at, [child for table in at for child in _children(table, part, schema)]
    return path, inside, at


def _children(table: dict[str, Any], part: str | int, schema: dict[str, Any]) -> list[dict[str, Any]]:
    child = table.get("items", {}) if isinstance(part, int) else table.get("properties", {}).get(part, {})
    if "discriminator" in child:
        return [child]
    options = child.get("anyOf") or child.get("allOf") or [child]
    return [_resolve(option["$ref"], schema) if "$ref" in option else option for option in options]


def _resolve(reference: str, schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][reference.rsplit("/", 1)[-1]]
    return found
