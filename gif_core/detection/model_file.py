"""The detector's model file: it is not part of the project, so it is installed into the cache, its digest checked."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from gif_core.artifacts import cache_folder
from schemas.addresses import hide_credentials
from schemas.errors import GifError

DETECTOR_FILE: Final = "face_detection_yunet_2023mar.onnx"
DETECTOR_URL: Final = f"https://github.com/opencv/opencv_zoo/raw/main/models/face_detection_yunet/{DETECTOR_FILE}"
"""YuNet of the OpenCV Zoo, under the MIT licence."""
DETECTOR_DIGEST: Final = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"
"""SHA-256. Only this file is accepted: thresholds were chosen with it, and OpenCV would run any other as well."""
LARGEST: Final = 2**20
"""Bytes read of a file or a download; the model has 233 kB."""
SECONDS: Final = 60.0
"""Time-out of a download."""


class DetectorMissingError(GifError):
    """No detector is installed."""


class DetectorFileError(GifError, ValueError):
    """A file that is not the expected model."""


def detector_path() -> Path:
    """Where the model is installed: in the cache folder, which `$GIF_CACHE` moves."""
    return cache_folder() / "detector" / DETECTOR_FILE


def find_detector() -> Path:
    """The installed model; DetectorMissingError says how to install it."""
    path = detector_path()
    if not path.is_file():
        raise DetectorMissingError(
            "no face detector is installed: 'gif detector install' downloads it, or download "
            f"{DETECTOR_URL} elsewhere and run 'gif detector install FILE'"
        )
    return path


def read_detector(path: Path) -> bytes:
    """The content of the installed model; DetectorFileError if it is damaged."""
    content = path.read_bytes()
    _check(content, str(path))
    return content


def install_detector(source: str = DETECTOR_URL) -> Path:
    """Copy a file or download a URL into the cache, if it is the expected model."""
    content = _download(source) if source.startswith(("http://", "https://")) else _read(Path(source))
    _check(content, hide_credentials(source))
    path = detector_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
    return path


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise DetectorFileError(f"there is no file {path}: give the path or the URL of {DETECTOR_FILE}")
    with path.open("rb") as file:
        return file.read(LARGEST)


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            content: bytes = answer.read(LARGEST)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        why = error.reason if type(error) is urllib.error.URLError else error
        raise DetectorFileError(
            f"{hide_credentials(url)} cannot be downloaded ({why}): download it elsewhere and give the file"
        ) from error
    return content


def _check(content: bytes, where: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest == DETECTOR_DIGEST:
        return
    found = "a Git LFS pointer" if content.startswith(b"version https://git-lfs") else f"a file with digest {digest}"
    raise DetectorFileError(
        f"{where} is not {DETECTOR_FILE}: it is {found}, and the expected SHA-256 is {DETECTOR_DIGEST}; "
        f"it is published at {DETECTOR_URL}"
    )
