"""The folder in which a worker's runs work: a pull step of the deployments chooses it on the worker's machine."""

import logging
import os
from pathlib import Path
from typing import Final

import flows
from schemas.errors import GifError

FOLDER: Final = "GIF_FOLDER"
"""The environment variable of a worker with the folder of its runs."""
PACKAGES: Final = ("flows", "tasks", "gif_core", "schemas")
CODE: Final = Path(flows.__file__).parents[1]
logger = logging.getLogger(__name__)


def enter(folder: str) -> dict[str, str]:
    """Pull step: work in GIF_FOLDER, else in `folder`, that of `gif deploy`, if this machine has it, else in ~/gif."""
    chosen = choose(folder)
    check_folder(chosen)
    os.chdir(chosen)
    logger.info("this run works in %s", chosen)
    return {"directory": str(chosen)}


def choose(folder: str) -> Path:
    """The folder of runs on this machine; GIF_FOLDER and ~/gif are created if they are missing."""
    given = os.environ.get(FOLDER)
    if not given and Path(folder).is_dir():
        return Path(folder)
    chosen = Path(given).expanduser().absolute() if given else Path.home() / "gif"
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GifError(
            f"this worker has no folder for its runs: {folder} is not on this machine, and {chosen} cannot be made "
            f"({error.strerror}); set {FOLDER} in the environment of the worker"
        ) from error
    return chosen


def check_folder(folder: Path) -> None:
    """Refuse a folder with packages of the same names: Prefect puts it first on the path and would import those."""
    others = [name for name in PACKAGES if (folder / name).is_dir()]
    if others and folder.resolve() != CODE.resolve():
        raise GifError(
            f"{folder} has folders that Prefect would import instead of the installed packages: {', '.join(others)}; "
            f"use another working folder for runs: call 'gif deploy' there, or set {FOLDER} for the worker"
        )
