"""A Prefect server for one command, when no other is set."""

import atexit
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

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
    with notes.status("Starting a Prefect server for this run …"), _without_interrupts():
        server.start(timeout=START_SECONDS)
    if server.server_process:
        _end_with_this_process(server.server_process.pid)
    return str(server.api_url)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are started in this block never see Ctrl-C: the runs that it ends report that to the server."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_this_process(server: int) -> None:
    """Start a shell that ends the server when a pipe closes that only this process holds open."""
    watcher = subprocess.Popen(["sh", "-c", WATCH, str(server)], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(watcher.kill)
