"""Files of weights that settings name: a local path, or a URL that is downloaded into the cache once."""

import hashlib
import http.client
import os
import shutil
import urllib.request
from pathlib import Path
from typing import Final

from gif_core.artifacts import cache_folder, file_sha256
from schemas.addresses import hide_credentials
from schemas.errors import GifError

SECONDS: Final = 60.0
"""Time-out of every read of a download."""


class WeightsFileError(GifError, ValueError):
    """A file of weights that does not exist or cannot be downloaded."""


def find_weights(address: str, setting: str) -> Path:
    """The local file of a path or URL; errors name the setting it comes from."""
    if address.startswith(("http://", "https://")):
        return _download(address, setting)
    path = Path(address).expanduser().absolute()
    if not path.is_file():
        raise WeightsFileError(f"{setting}: there is no file {path}")
    return path


def describe_file(address: str, setting: str) -> str:
    """What a key says of a file of weights: its digest, so that moving it changes nothing."""
    return f"sha256:{file_sha256(find_weights(address, setting))}"


def _download(url: str, setting: str) -> Path:
    """The file in the cache, which is complete if it has its name; another URL is another file."""
    name = url.partition("?")[0].rpartition("/")[2] or "weights"
    path = cache_folder() / "weights" / hashlib.sha256(url.encode()).hexdigest()[:16] / name
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer, partial.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, http.client.HTTPException) as error:
        partial.unlink(missing_ok=True)
        message = f"{setting}: {hide_credentials(url)} cannot be downloaded ({error})"
        raise WeightsFileError(f"{message}: download it elsewhere and give the file") from error
    partial.replace(path)
    return path
