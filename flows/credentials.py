"""Credentials of object storage from a Prefect block, as an alternative to environment variables."""

import json
import os
from typing import Any, Final

import fsspec

from schemas.errors import GifError

BLOCK: Final = "GIF_S3_BLOCK"
NAMES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)


class CredentialsError(GifError):
    """The named block cannot be used; the message never contains its content."""


def load_credentials(address: str = "s3://") -> None:
    """Put the content of the block `$GIF_S3_BLOCK` into the environment of this process and its children.

    It is written nowhere else. Without a block, or if `address` is not object storage, this does nothing.
    """
    name = os.environ.get(BLOCK)
    if not name or not address.startswith("s3"):
        return
    found = _check(name, _load(name))
    if any(os.environ.get(variable) != value for variable, value in found.items()):
        os.environ.update(found)
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def _load(name: str) -> Any:
    from prefect.blocks.system import Secret

    load: Any = Secret.load
    try:
        value = load(name, _sync=True).get()
    except ValueError:
        known = f"prefect block create secret, with the name {name!r}"
        raise CredentialsError(f"{BLOCK}: Prefect's server has no Secret block {name!r}: make one ({known})") from None
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise CredentialsError(f"{BLOCK}: the Secret block {name!r} is not JSON") from None


def _check(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise CredentialsError(
            f"{BLOCK}: the Secret block {name!r} must be a JSON object of strings, like an environment"
        )
    unknown = sorted(set(value) - set(NAMES))
    if unknown:
        raise CredentialsError(f"{BLOCK}: {name!r} has {', '.join(unknown)}; what it may have: {', '.join(NAMES)}")
    return value
