"""Noticing that the machine at the other end of a connection is gone.

A machine that loses its network or its power says nothing: whoever waits for it would wait until its own time limit,
which must be long enough for the slowest step. The kernel asks the other machine's kernel instead, which answers for
as long as it is there, however long its process takes.
"""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

OPEN_FILES: Final = Path("/proc/self/fd")
"""Linux alone lists them: elsewhere the time limits of messages have to do."""
PROBES: Final = 4
"""Questions without an answer after which a connection has ended."""


def end_silent_connections(seconds: float) -> None:
    """Let every TCP connection of this process fail once its other end has not answered for so long."""
    for each in list(OPEN_FILES.iterdir()) if OPEN_FILES.is_dir() else ():
        with suppress(OSError):
            descriptor = int(each.name)
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                _watch(descriptor, seconds)


def _watch(descriptor: int, seconds: float) -> None:
    """Set the options on a copy of the descriptor, which is closed again: they are the connection's."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
            return
        connection.getpeername()  # listening sockets have no other end
        pause = max(1, round(seconds / PROBES))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))
