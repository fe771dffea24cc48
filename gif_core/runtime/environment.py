"""The machine and the packages that compute a stage, as they are recorded with it."""

import os
import platform
import re
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from gif_core.runtime.distribution import DISTRIBUTION
from schemas.artifacts import Environment

CPU_NAMES: Final = Path("/proc/cpuinfo")
DRIVER_QUERY: Final = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def describe_environment() -> Environment:
    """This machine and the versions of the packages that the project asks for.

    GPUs are those that PyTorch sees, if this process has imported it: a process without it has computed on none.
    """
    torch = sys.modules.get("torch")
    gpus = _gpus(torch) if torch else ()
    return Environment(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        gpus=gpus,
        driver=_driver() if gpus else None,
        cuda=torch.version.cuda if torch and gpus else None,
        packages=_packages(),
    )


def _gpus(torch: Any) -> tuple[str, ...]:
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))


@cache
def _driver() -> str | None:
    try:
        answer = subprocess.run(DRIVER_QUERY, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.partition("\n")[0].strip() or None


@cache
def _cpu_name() -> str:
    """The name that Linux reports; elsewhere what the system calls its processor."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", CPU_NAMES.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


@cache
def _packages() -> dict[str, str]:
    """Installed versions of the distribution's requirements, those of its extras too."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    names = {found[0] for line in required if (found := re.match(r"[A-Za-z0-9._-]+", line))}
    versions = {name: _version(name) for name in sorted(names, key=str.lower)}
    return {name: version for name, version in versions.items() if version}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
