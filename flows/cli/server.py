"""A Prefect server for one command, when no other is set."""

import atexit
import subprocess

from prefect.settings import PREFECT_API_URL

from flows.cli.output import Console

START_SECONDS = 120
WATCH = 'cat > /dev/null; kill -TERM "$0"'


def ensure_server(notes: Console) -> str:
    """Start Prefect's temporary server unless one is set or started; it ends with this process, even if that is killed.

    Returns its address.
    """
    if known := PREFECT_API_URL.value():
        return str(known)
    from prefect.server.api.server import SubprocessASGIServer  # imports the whole server, which takes seconds

    server = SubprocessASGIServer()  # the same one in every call
    if server.running:
        return str(server.api_url)
    with notes.status("Starting a Prefect server for this run …"):
        server.start(timeout=START_SECONDS)
    if server.server_process:
        _end_with_this_process(server.server_process.pid)
    return str(server.api_url)


def _end_with_this_process(server: int) -> None:
    """Start a shell that ends the server when a pipe closes that only this process holds open."""
    watcher = subprocess.Popen(["sh", "-c", WATCH, str(server)], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(watcher.kill)
