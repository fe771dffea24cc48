"""The Prefect server that a command starts for itself."""

import signal
import subprocess
import sys

from flows.cli.server import _without_interrupts

BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_a_server_that_is_started_for_a_run_does_not_hear_the_ctrl_c_that_ends_the_run() -> None:
    with _without_interrupts():
        inside = subprocess.check_output([sys.executable, "-c", BLOCKED], text=True)
    outside = subprocess.check_output([sys.executable, "-c", BLOCKED], text=True)
    assert (inside, outside) == ("True\n", "False\n")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
