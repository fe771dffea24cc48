"""Addresses of stores and sources: folders or URLs, never with credentials inside."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field


def _refuse_credentials(address: str) -> str:
    if "@" in urlsplit(address).netloc:
        raise ValueError("an address carries no credentials: give them in the environment")
    return address


Address = Annotated[str, Field(min_length=1), AfterValidator(_refuse_credentials)]
