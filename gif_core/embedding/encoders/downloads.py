"""Downloads of weights that fail within seconds: an unreachable host is found out once, not by minutes of retries."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

PROBE_SECONDS: Final = 3.0
"""Within which a host must accept a connection."""
READ_SECONDS: Final = 20.0
"""Within which a host that has accepted one must answer."""


@contextmanager
def hurried_downloads(url: str = "") -> Iterator[None]:
    """Let downloads inside fail soon; if the host cannot be reached, the hub's library looks at its cache only.

    `url` is where the weights are; without it they are on Hugging Face's hub.
    """
    from huggingface_hub import constants

    reachable = can_reach(url or constants.ENDPOINT)
    before, offline = socket.getdefaulttimeout(), constants.HF_HUB_OFFLINE
    socket.setdefaulttimeout(READ_SECONDS if reachable else PROBE_SECONDS)
    constants.HF_HUB_OFFLINE = offline or not reachable
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        socket.setdefaulttimeout(before)


def can_reach(url: str) -> bool:
    """Whether the host of a URL, or the proxy that is set for it, accepts a connection."""
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    address = urlsplit(proxy if proxy and "://" in proxy else f"//{proxy}" if proxy else url)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def reason_of(error: Exception) -> str:
    """The first line of an error, without the name of its class."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no answer"
