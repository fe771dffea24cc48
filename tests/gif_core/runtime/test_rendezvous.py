"""Where the machines of a job meet: addresses that others reach, and the network that leads there."""

import pytest

from gif_core.runtime import MachinesApartError, interface_of, own_address, rendezvous_options, split_endpoint
from gif_core.runtime.rendezvous import hosts_meeting
from schemas.errors import GifError
from schemas.execution import ExecutionConfig
from tests.conftest import free_port

ELSEWHERE = "192.0.2.1:29500"
"""An address that documentation may use and no machine has."""


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("first:29500", ("first", 29500)), ("10.0.0.1:1", ("10.0.0.1", 1)), ("[fd00::1]:2", ("fd00::1", 2))],
)
def test_an_endpoint_has_a_host_and_a_port(endpoint: str, expected: tuple[str, int]) -> None:
    assert split_endpoint(endpoint) == expected


@pytest.mark.parametrize("endpoint", ["first", "first:", ":29500", "first:port", "first:65536"])
def test_an_endpoint_without_host_or_port_is_refused_with_an_example(endpoint: str) -> None:
    with pytest.raises(GifError, match=r"must be host:port, such as first-host:29500"):
        split_endpoint(endpoint)


def test_a_meeting_on_loopback_gives_no_address_for_others_and_leaves_all_to_torchrun() -> None:
    assert own_address("127.0.0.1:29500") is None
    options = rendezvous_options(ExecutionConfig(nodes="2", rendezvous="127.0.0.1:29500", lost_after=20), "test")
    assert "--rdzv-conf=join_timeout=600,read_timeout=20" in options
    assert not [option for option in options if option.startswith("--local-addr")]


def test_only_the_machine_with_the_address_hosts_the_meeting_and_only_one_process_of_it() -> None:
    import socket

    port = free_port()
    assert hosts_meeting(f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", port)):
        assert not hosts_meeting(f"127.0.0.1:{port}")
    assert not hosts_meeting(ELSEWHERE)


def test_the_network_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None


def test_a_name_that_nobody_knows_may_be_known_later() -> None:
    with pytest.raises(MachinesApartError, match="cannot be reached from this machine"):
        own_address("x" * 64 + ":29500")
