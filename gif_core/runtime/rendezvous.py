"""How the machines of a job reach each other: who hosts their meeting, at which address and on which network."""

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from schemas.errors import GifError

INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""Environment variable with the network interface that messages between hosts use."""
_ADDRESS_OF_INTERFACE: Final = 0x8915
"""Linux' SIOCGIFADDR."""
_IPV6_ADDRESSES: Final = Path("/proc/net/if_inet6")


class MachinesApartError(GifError):
    """The machines of a job do not reach each other; a later attempt may find them together again."""


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is in brackets."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise GifError(f"execution.rendezvous={endpoint} must be host:port, such as first-host:29500")
    return host.strip("[]"), int(port)


def own_address(endpoint: str) -> str | None:
    """The address of this machine that others reach it at; None if the meeting is on this machine's loopback."""
    host, port = split_endpoint(endpoint)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # a datagram socket sends nothing when it connects
            own = str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, UnicodeError) as error:  # names with empty or long parts are no Unicode to Python
        raise MachinesApartError(
            f"execution.rendezvous={endpoint} cannot be reached from this machine ({error}): name one of the machines "
            "by an address or a name that all of them know, and check this machine's network"
        ) from error
    return None if ipaddress.ip_address(own).is_loopback else own


def hosts_meeting(endpoint: str) -> bool:
    """Whether the meeting is at an address of this machine, and no other process of it hosts one there already."""
    host, port = split_endpoint(endpoint)
    with suppress(OSError):
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family):
            return True
    return False


def interface_of(address: str) -> str | None:
    """The network interface that has an address; None if the system does not say."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if address in _addresses_of(name)), None)


def _addresses_of(interface: str) -> set[str]:
    """The first IPv4 address and all IPv6 addresses of an interface, on Linux."""
    found = set()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _ADDRESS_OF_INTERFACE, struct.pack("256s", interface.encode()[:15]))
        found.add(socket.inet_ntoa(answer[20:24]))
    lines = _IPV6_ADDRESSES.read_text().splitlines() if _IPV6_ADDRESSES.is_file() else []
    entries = [line.split() for line in lines]
    return found | {str(ipaddress.IPv6Address(int(entry[0], 16))) for entry in entries if entry[-1] == interface}
