"""The version of the code: the package's version and, in a checkout, the commit."""

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from gif_core.runtime.distribution import DISTRIBUTION


@cache
def code_version() -> str:
    """The version, for instance `0.1.0+g1a2b3c4-dirty`."""
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        version = "0"
    commit = _commit(Path(__file__).parents[2])
    return f"{version}+g{commit}" if commit else version


def _commit(checkout: Path) -> str:
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()
