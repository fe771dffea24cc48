"""The JSON files of an evaluation: `scores.json` and `identification.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gif_core.artifacts import Artifact
from schemas.errors import GifError

FORMAT: Final = 3
"""Of `scores.json` and `identification.json`."""
SCORES_FILE: Final = "scores.json"
IDENTIFICATION_FILE: Final = "identification.json"
FlagValues = Mapping[str, bool | int | float | str]
"""How features were made and folds cut: what a metric must be compared with."""


class ScoresFormatError(GifError, ValueError):
    """Scores that another version of the program wrote."""


def flags_of(found: Mapping[str, Any], system: str) -> FlagValues:
    """How one system of a described set was measured: by its own flags and by those that all share."""
    return {**found.get("system_flags", {}).get(system, {}), **found["flags"]}


def read_scores(path: Path) -> dict[str, Mapping[str, Any]]:
    """The sets of a `scores.json` by their names."""
    sets: dict[str, Mapping[str, Any]] = _read_json(path)["sets"]
    return sets


def read_identification(evaluation: Artifact) -> Mapping[str, Any] | None:
    """What an evaluation says of identification among the enrolled; None when it was not asked to."""
    if IDENTIFICATION_FILE not in evaluation.names():
        return None
    return _read_json(evaluation.path(IDENTIFICATION_FILE))


def write_json(path: Path, about: Mapping[str, Any]) -> None:
    """JSON has no NaN: a metric that is undefined must be left out before."""
    path.write_text(json.dumps({"format": FORMAT, **about}, indent=1, allow_nan=False), "utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if about.get("format") != FORMAT:
        raise ScoresFormatError(
            f"{path} has the format {about.get('format')}, and this version of GIF reads {FORMAT}: "
            "evaluate that model again with 'gif run --from evaluation'"
        )
    return about
