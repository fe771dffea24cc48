"""The installed distribution: its name, the versions it was tested with, and commands that add packages to it."""

import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

DISTRIBUTION: Final = "gif-face-recognition"
"""The name that pip knows. `gif` is another project on PyPI."""
CONSTRAINTS: Final = Path(__file__).with_name("constraints.txt")
"""Versions of all packages in the tests."""


def install_command(*requirements: str) -> str:
    """The command that adds packages to this environment in the tested versions, from any folder."""
    pip = [sys.executable, "-m", "pip", "install", "--constraint", str(CONSTRAINTS.resolve())]
    return shlex.join([*pip, *requirements])


def install_extra_command(extra: str) -> str:
    """The command that adds what an extra of the distribution needs, wherever the distribution came from."""
    return install_command(*extra_requirements(extra))


def extra_requirements(extra: str) -> list[str]:
    """Requirements of an extra, as the installed metadata or else pyproject.toml of the checkout states them."""
    try:
        stated = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:
        return _checkout_requirements(extra)
    return [_without_marker(each) for each in stated if _belongs_to(each, extra)]


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _without_marker(requirement: Requirement) -> str:
    requirement.marker = None
    return str(requirement)


def _checkout_requirements(extra: str) -> list[str]:
    """Code that runs from a checkout without being installed, for instance through PYTHONPATH."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    stated: list[str] = project["optional-dependencies"][extra]
    return stated
