"""Addresses of stores and sources: folders or URLs, never with credentials inside."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")


def check_address(address: str) -> str:
    """Refuse an address with credentials in it; they would end up in logs and manifests."""
    if CREDENTIALS.search(address):
        raise ValueError("an address carries no credentials: give them in the environment")
    return address


def hide_credentials(text: str) -> str:
    """The text without whatever stands between `://` and `@`."""
    return CREDENTIALS.sub("…@", text)


Address = Annotated[str, Field(min_length=1), AfterValidator(check_address)]
