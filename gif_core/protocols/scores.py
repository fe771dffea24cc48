"""The JSON files of an evaluation: `scores.json` and `identification.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gif_core.artifacts import Artifact
from schemas.errors import GifError
from schemas.files import IDENTIFICATION_FILE

FORMAT: Final = 4
"""Format number of `scores.json` and `identification.json`."""
FlagValues = Mapping[str, bool | int | float | str]
"""Settings of a measurement, such as mirror images and folds; metrics with different flags are not comparable."""


class ScoresFormatError(GifError, ValueError):
    """Scores in the format of another version."""


def flags_of(found: Mapping[str, Any], system: str) -> FlagValues:
    """Return the flags with which a system was measured: its own and those shared by all systems."""
    return {**found.get("system_flags", {}).get(system, {}), **found["flags"]}


def read_scores(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read the sets of a `scores.json` by name."""
    sets: dict[str, Mapping[str, Any]] = _read_json(path)["sets"]
    return sets


def read_groups(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read the comparisons of groups of a `scores.json` by benchmark; none if no set has a `group`."""
    groups: dict[str, Mapping[str, Any]] = _read_json(path).get("groups", {})
    return groups


def read_identification(evaluation: Artifact) -> Mapping[str, Any] | None:
    """Read the identification results of an evaluation; None if identification was not measured."""
    if IDENTIFICATION_FILE not in evaluation.names():
        return None
    return _read_json(evaluation.path(IDENTIFICATION_FILE))


def write_json(path: Path, about: Mapping[str, Any]) -> None:
    """Write a JSON file with the format number; JSON has no NaN, so undefined metrics must be left out."""
    path.write_text(json.dumps({"format": FORMAT, **about}, indent=1, allow_nan=False), "utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if about.get("format") != FORMAT:
        raise ScoresFormatError(
            f"{path} has format {about.get('format')}, but this version of GIF reads {FORMAT}: "
            "evaluate that model again with 'gif run --from evaluation'"
        )
    return about
