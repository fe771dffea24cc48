"""Blocks of image files in one piece of memory, and checking all images of a block at once.

Work per image in Python costs more than work per byte in C. So JPEG markers are searched in the whole block, and only
images that differ from the previous one are checked individually.
"""

# Shapes: U images of one block.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gif_core.images.bounds import END, MARKER, BadImageError, ImageLimits
from gif_core.images.checks import JpegHeader, check_decodes, check_image

IS_MARKER: Final = np.array([MARKER.match(bytes([0xFF, value])) is not None for value in range(256)])
"""Whether 0xFF followed by this byte ends JPEG image data."""


@dataclass(frozen=True)
class ImageBlock:
    """Image files within a piece of memory, which may hold other bytes between them."""

    content: bytes
    start_U: NDArray[np.int64]
    end_U: NDArray[np.int64]
    bad: dict[int, str] = field(default_factory=dict)
    """Reasons why there is no image, by position."""

    def images(self) -> list[memoryview]:
        """The bytes of every image, without a copy."""
        view = memoryview(self.content)
        return [view[start:end] for start, end in zip(self.start_U.tolist(), self.end_U.tolist(), strict=True)]


def gather(contents: Iterable[bytes | BadImageError]) -> ImageBlock:
    """Pack single images into a block."""
    found = list(contents)
    images = [b"" if isinstance(content, BadImageError) else content for content in found]
    bad = {place: str(content) for place, content in enumerate(found) if isinstance(content, BadImageError)}
    return _pack(images, bad)


def join(blocks: Sequence[ImageBlock]) -> ImageBlock:
    """Merge blocks into one."""
    return blocks[0] if len(blocks) == 1 else _pack(list(chain.from_iterable(block.images() for block in blocks)), {})


def _pack(images: Sequence[bytes | memoryview], bad: dict[int, str]) -> ImageBlock:
    size_U = np.fromiter(map(len, images), np.int64, len(images))
    end_U = np.cumsum(size_U)
    return ImageBlock(b"".join(images), end_U - size_U, end_U, bad)


class BlockChecker:
    """Checks all images of a block as `check_image` does; safe to call from several threads.

    JPEG files of one encoder have the same header: of an image with the header of the last valid one, only the image
    data is checked.
    """

    def __init__(self, limits: ImageLimits, *, decode_all: bool = False) -> None:
        """Start without a known header."""
        self.limits, self.decode_all = limits, decode_all
        self.known: tuple[bytes, JpegHeader] | None = None

    def __call__(self, block: ImageBlock) -> dict[int, str]:
        """Reasons why images cannot be used, by position."""
        sound_U = self._are_like_known(block)
        bad = {}
        for place in np.flatnonzero(~sound_U).tolist():
            reason = block.bad.get(place) or self._judge(block.content[block.start_U[place] : block.end_U[place]])
            if reason:
                bad[place] = reason
        return bad

    def _are_like_known(self, block: ImageBlock) -> NDArray[np.bool_]:
        """Whether each is a JPEG with the known header whose image data is long enough and ends with the end marker."""
        if self.known is None or self.decode_all:
            return np.zeros(len(block.start_U), bool)
        beginning, header = self.known
        spans = zip(block.start_U.tolist(), block.end_U.tolist(), strict=True)
        alike_U = np.array([block.content.startswith(beginning, start, end) for start, end in spans], bool)
        if not alike_U.any():
            return alike_U
        data_U = np.minimum(block.start_U + len(beginning), block.end_U)
        marker_U, is_end_U = _first_markers(block.content, data_U)
        enough_U = 4 * (marker_U - data_U) >= header.width * header.height // 64
        return np.asarray(alike_U & is_end_U & enough_U & (marker_U + len(END) <= block.end_U), bool)

    def _judge(self, content: bytes) -> str:
        """The reason why one image cannot be used; empty if it can."""
        try:
            self.known = check_image(content, self.limits) or self.known
            if self.decode_all:
                check_decodes(content)
        except BadImageError as error:
            return str(error)
        return ""


def _first_markers(content: bytes, start_U: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Position of the first marker from each start on (or the end of the content), and whether it ends an image."""
    values = np.frombuffer(content, np.uint8)
    places = np.flatnonzero(values[:-1] == END[0])
    following = values[places + 1]
    is_marker = IS_MARKER[following]
    places, following = np.append(places[is_marker], len(content)), np.append(following[is_marker], 0)
    found_U = np.searchsorted(places, start_U)
    return places[found_U], following[found_U] == END[1]
