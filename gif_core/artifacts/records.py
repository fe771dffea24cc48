"""Sealed records: the store's small JSON files end with a digest of everything before it.

Manifests, tags, run records and decisions name the files of others and their digests. Their own digest makes a changed
byte in them an error that names the file, instead of another value.
"""

import hashlib
import re
from typing import Final, TypeVar

from pydantic import ValidationError

from gif_core.artifacts.errors import RecordDamagedError
from schemas.base import Stored

Record = TypeVar("Record", bound=Stored)
SEAL: Final = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\Z')
"""The last field of a sealed record."""


def seal(record: Stored) -> bytes:
    """A record as JSON whose last field is the SHA-256 of the JSON without it."""
    return seal_text(record.model_dump_json(indent=1).encode())


def seal_text(content: bytes) -> bytes:
    """A JSON object of several lines with its digest as the last field."""
    return content.removesuffix(b"\n}") + b',\n "sha256": "%s"\n}' % hashlib.sha256(content).hexdigest().encode()


def unseal(kind: type[Record], content: bytes, path: str) -> Record:
    """Read a sealed record; RecordDamagedError, which names the file, if its digest is missing or wrong."""
    found = SEAL.search(content)
    if found is None:
        raise RecordDamagedError(f"{path} has no digest: it is damaged, or another version of GIF has written it")
    plain = content[: found.start()] + b"\n}"
    if hashlib.sha256(plain).hexdigest().encode() != found.group(1):
        raise RecordDamagedError(f"{path} is damaged: its content does not match its digest")
    try:
        return kind.model_validate_json(plain)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise RecordDamagedError(
            f"{path} cannot be read: {field}: {first['msg'].removeprefix('Value error, ')}"
        ) from None
