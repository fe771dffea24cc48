"""Prefect's settings for the command line; variables that are already set are kept."""

import os
from pathlib import Path

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
WATCHED = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""Seconds between the heartbeats of a run: see `flows/deployment.py`."""
SERVER = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_UI_API_URL": "/api",
}
"""A restarted server remembers the holder of each concurrency slot and frees the slot when the holder is gone. By
default it forgets the holder but not that the slot is taken, so the slot is lost. The UI calls the API at the address
that it was loaded from; by default it calls the address known to this machine, which other machines cannot reach."""


def names_server() -> bool:
    """Whether a Prefect server is set, in the environment or in a profile; without importing Prefect."""
    if "PREFECT_API_URL" in os.environ:
        return bool(os.environ["PREFECT_API_URL"])
    home = Path(os.environ.get("PREFECT_HOME", Path.home() / ".prefect"))
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    return profiles.is_file() and "PREFECT_API_URL" in profiles.read_text(errors="replace")


def prepare(*, verbose: bool = False) -> None:
    """Set Prefect's defaults, before it is imported: no telemetry, and a long timeout for its temporary server.

    The log always goes to Prefect's server; the terminal shows it with `verbose`, and progress bars otherwise.
    """
    terminal = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO" if verbose else "CRITICAL"}
    for name, value in (DEFAULTS | WATCHED | terminal).items():
        os.environ.setdefault(name, value)


def share_threads(runs: int) -> None:
    """Give each of so many runs beside each other its share of the processors; before anything loads OpenMP."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // runs)))
