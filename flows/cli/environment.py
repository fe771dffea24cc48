"""Prefect's settings for people at a terminal; whatever they have set themselves is kept."""

import os

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,gif_core",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}


def prepare(*, verbose: bool = False) -> None:
    """Call before Prefect is imported: quiet, offline, and patient with the server it starts for itself."""
    level = "INFO" if verbose else "CRITICAL"
    for name, value in (DEFAULTS | {"PREFECT_LOGGING_LEVEL": level}).items():
        os.environ.setdefault(name, value)
