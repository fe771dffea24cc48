"""Files of a source: names, sizes and digests."""

from typing import Final, NamedTuple

IMAGE_ENDINGS: Final = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
LARGEST_IMAGE: Final = 64 * 2**20
"""Bytes. No image of a face is larger; a damaged length must not fill the memory."""


class SourceFile(NamedTuple):
    """One file of a source: when it is still the same, so is what was read from it."""

    name: str
    size: int
    digest: str
