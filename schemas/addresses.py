"""Addresses of stores and sources: folders or URLs, never with credentials inside."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")


def check_address(address: str) -> str:
    """Reject an address that contains credentials: they would end up in logs and manifests."""
    if CREDENTIALS.search(address):
        raise ValueError("an address must not contain credentials: pass them in environment variables")
    return address


def hide_credentials(text: str) -> str:
    """Mask everything between `://` and `@` in a text."""
    return CREDENTIALS.sub("…@", text)


Address = Annotated[str, Field(min_length=1), AfterValidator(check_address)]
