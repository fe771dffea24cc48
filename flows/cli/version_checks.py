"""Checks of versions for `gif doctor`: installed packages against those that the project was tested with."""

import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from flows.cli.checks import Check
from gif_core.runtime import CONSTRAINTS, install_command

NEEDED = (
    "duckdb",
    "fastapi",
    "fsspec",
    "numpy",
    "open_clip_torch",
    "opencv-python-headless",
    "prefect",
    "pyarrow",
    "pydantic",
    "s3fs",
    "safetensors",
    "SQLAlchemy",
    "timm",
    "torch",
    "torchvision",
)
BROKEN: Mapping[str, tuple[str, str]] = {
    "fastapi": ("0.151", "Prefect's server does not start with it"),
    "SQLAlchemy": ("2.1", "Prefect's server never makes scheduled runs with it"),
}
"""First version that does not work, and its effect."""


def check_versions(constraints: Path = CONSTRAINTS) -> Iterator[Check]:
    """Check Python, and report every package that is missing, broken or of another version than tested."""
    yield Check("Python", "ok" if sys.version_info >= (3, 11) else "fail", sys.version.split()[0])
    tested = _read_constraints(constraints)
    faults = [fault for name in NEEDED for fault in _check_package(name, tested.get(name.lower()))]
    yield from faults or [Check("packages", "ok", f"{len(NEEDED)} as in {constraints.name}")]


def _read_constraints(path: Path) -> dict[str, str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    pins = (Requirement(line) for line in lines if line)
    return {pin.name.lower(): next(iter(pin.specifier)).version for pin in pins if pin.specifier}


def _check_package(name: str, tested: str | None) -> Iterator[Check]:
    try:
        found = version(name)
    except PackageNotFoundError:
        yield Check(name, "fail", "not installed", install_command(name))
        return
    first_broken, fault = BROKEN.get(name, (None, ""))
    if first_broken and Version(found) >= Version(first_broken):
        yield Check(name, "fail", f"{found}: {fault}", install_command(name))
    elif tested is None or Version(found).public != tested:
        yield Check(name, "warn", f"{found}; tested with {tested or 'none'}", install_command(name))
