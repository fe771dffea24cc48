"""Connections whose other end is gone: the kernel is asked to notice, for all of a process and nothing else."""

import socket

import pytest

from gif_core.runtime import end_silent_connections
from gif_core.runtime.connections import OPEN_FILES


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="only Linux lists the connections of a process")
def test_all_connections_of_the_process_are_watched_and_go_on_as_before() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as one,
        listener.accept()[0] as other,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        end_silent_connections(20)
        for connection in (one, other):
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        for untouched in (listener, datagrams):
            assert untouched.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        one.sendall(b"still here")
        assert other.recv(10) == b"still here"
