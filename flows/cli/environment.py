"""Prefect's settings for identities at a terminal; whatever they have set themselves is kept."""

import os

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
WATCHED = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""A run tells the server so often, in seconds, that it lives: see `flows/deployment.py`."""
SERVER = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_UI_API_URL": "/api",
}
"""A server that is started again knows who held which slot, and takes it back when the holder is gone. By default it
forgets the holder but not that the slot is taken, and nobody else ever gets it. A browser of another machine asks the
server that it has the UI from, and not, as by default, the address under which this machine knows it."""


def prepare(*, verbose: bool = False) -> None:
    """Call before Prefect is imported: offline, and patient with the server it starts for itself.

    The log goes to Prefect's server in any case; the terminal shows it when asked, and bars otherwise.
    """
    terminal = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO" if verbose else "CRITICAL"}
    for name, value in (DEFAULTS | WATCHED | terminal).items():
        os.environ.setdefault(name, value)
