"""Checks of the other machines of a run for `gif doctor`: whether they can meet at `execution.rendezvous`."""

import socket
from collections.abc import Iterator

from flows.cli.checks import Check
from gif_core.runtime import MachinesApartError, interface_of, own_address, split_endpoint
from schemas.errors import GifError
from schemas.execution import ExecutionConfig

CONNECT_SECONDS = 5.0


def check_machines(execution: ExecutionConfig) -> Iterator[Check]:
    """Check the address at which the machines of a run meet; nothing on one machine."""
    if execution.nodes == "1":
        return
    if execution.rendezvous is None:
        advice = "set it to host:port of one of the machines, the same on all of them"
        yield Check("machines", "fail", "execution.rendezvous is not set", advice)
        return
    try:
        own = own_address(execution.rendezvous)
    except MachinesApartError as error:
        yield Check("machines", "fail", str(error), "look at the name, and at this machine's network")
    except GifError as error:
        yield Check("machines", "fail", str(error), "correct execution.rendezvous")
    else:
        yield _check_meeting(execution.rendezvous, own)


def _check_meeting(endpoint: str, own: str | None) -> Check:
    if own is None:
        advice = "name the machine by an address that the others reach, unless all processes are on this one"
        return Check("machines", "warn", f"{endpoint} is a loopback address of this machine", advice)
    seen = f"{own} on {interface_of(own) or 'an unknown interface'}"
    try:
        with socket.create_connection(split_endpoint(endpoint), CONNECT_SECONDS):
            return Check("machines", "ok", f"a run waits at {endpoint}; this machine is {seen}")
    except ConnectionRefusedError:  # the machine answers, and no run is there yet
        return Check("machines", "ok", f"{endpoint} is reached, no run waits there; this machine is {seen}")
    except OSError as error:
        advice = "start that machine, or let this port through its firewall"
        return Check("machines", "fail", f"{endpoint} does not answer {own}: {error}", advice)
