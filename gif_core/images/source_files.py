"""SourceFile: name, size and digest of a file of a source; and the endings and largest size of image files."""

from typing import Final, NamedTuple

IMAGE_ENDINGS: Final = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
LARGEST_IMAGE: Final = 64 * 2**20
"""Bytes. Larger lengths count as damage, so that they cannot exhaust the memory."""


class SourceFile(NamedTuple):
    """One file of a source. If it is equal to an earlier one, its content is taken as unchanged."""

    name: str
    size: int
    digest: str
