"""Fast checks of image files: whether their bytes can be trained on.

A baseline JPEG is checked by its structure, which is many times faster than decoding: markers, tables and sizes must be
such that a decoder cannot fail, and the image data must reach the end marker. (Decoders do not check that: they fill
missing data with grey.) Any other image is decoded.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import cv2
import numpy as np

from gif_core.images.bounds import (
    END,
    MARKER,
    MOST_SEGMENTS,
    START,
    BadImageError,
    ImageLimits,
    check_bounds,
    frame_and_scan,
)

SCAN: Final = b"\xff\xda"
BASELINE: Final = frozenset({0xC0, 0xC1})
SKIPPED: Final = frozenset({*range(0xE0, 0xF0), 0xFE})
RESTARTS: Final = (0xDD, 2)
MOST_BLOCKS: Final = 10
"""Most blocks of all components in one minimum coded unit."""
REMEMBERED: Final = 2**14
"""Largest header that is cached, in bytes: longer ones are rarely equal and take much memory."""


@dataclass
class JpegHeader:
    """The part of a JPEG file before its image data."""

    width: int = 0
    height: int = 0
    components: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Horizontal and vertical sampling and quantisation table, by component id."""
    quantisation: set[int] = field(default_factory=set)
    huffman: set[int] = field(default_factory=set)
    """Numbers of the Huffman tables; those for AC coefficients start at 16."""


class UnusualError(Exception):
    """A JPEG that must be decoded to be checked."""


def check_image(content: bytes, limits: ImageLimits) -> tuple[bytes, JpegHeader] | None:
    """Raise BadImageError if the file is empty, not an image, truncated, damaged, too small or too large.

    Returns the header of a baseline JPEG.
    """
    if not content:
        raise BadImageError("empty: the file has no bytes")
    if content.startswith(START):
        return _check_jpeg(content, limits)
    check_bounds(content, limits)
    check_decodes(content)
    return None


def check_decodes(content: bytes) -> None:
    """Raise BadImageError if OpenCV cannot decode the file."""
    try:
        image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise BadImageError(f"cannot be decoded: {error.err or error}") from None
    if image is None:
        raise BadImageError("cannot be decoded")


def _check_jpeg(content: bytes, limits: ImageLimits) -> tuple[bytes, JpegHeader] | None:
    scan = content.find(SCAN)
    if scan < 0 or scan + 4 > len(content):
        raise BadImageError("truncated: a JPEG file without image data")
    data = scan + 2 + int.from_bytes(content[scan + 2 : scan + 4], "big")
    read_header = _plain_header if data <= REMEMBERED else _plain_header.__wrapped__
    try:
        header = read_header(content[:data])
    except UnusualError:
        _check_unusual_jpeg(content, limits)
        return None
    limits.check(header.width, header.height)
    _check_image_data(content, data, header)
    return content[:data], header


def _check_image_data(content: bytes, start: int, header: JpegHeader) -> None:
    """The data must reach the end marker without another marker, and have at least two bits per block."""
    found = MARKER.search(content, start)
    if found is None:
        raise BadImageError("truncated: no end-of-image marker")
    if found.group() != END:
        raise BadImageError(f"damaged: marker {found.group().hex()} in the middle of the image data")
    if 4 * (found.start() - start) < header.width * header.height // 64:
        raise BadImageError("truncated: too little image data for its size")


def _check_unusual_jpeg(content: bytes, limits: ImageLimits) -> None:
    check_bounds(content, limits)
    if content.find(END, frame_and_scan(content)[2]) < 0:
        raise BadImageError("truncated: no end-of-image marker")
    check_decodes(content)


@lru_cache(maxsize=1024)
def _plain_header(content: bytes) -> JpegHeader:
    """Parse the header of a baseline JPEG with one scan; cached, since files of one encoder share it."""
    header = JpegHeader()
    for marker, segment in _segments(content):
        if marker in BASELINE and not header.components:
            _read_frame(header, segment)
        elif marker == 0xC4:
            _read_huffman(header, segment)
        elif marker == 0xDB:
            _read_quantisation(header, segment)
        elif marker == 0xDA:
            _read_scan(header, segment)
        elif marker not in SKIPPED and (marker, len(segment)) != RESTARTS:
            raise UnusualError(f"marker {marker:#x}")
    return header


def _segments(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Markers and their contents up to the first scan's header, at which `content` must end."""
    position, marker, count = 2, 0, 0
    while marker != 0xDA:
        count += 1
        if count > MOST_SEGMENTS or position + 4 > len(content) or content[position] != 0xFF:
            raise UnusualError("markers are not where they should be")
        marker = content[position + 1]
        length = int.from_bytes(content[position + 2 : position + 4], "big")
        segment = content[position + 4 : position + 2 + length]
        if length < 2 or len(segment) != length - 2:
            raise UnusualError("a segment is cut off")
        yield marker, segment
        position += 2 + length
    if position != len(content):
        raise UnusualError("what looked like a scan is something else")


def _read_frame(header: JpegHeader, segment: bytes) -> None:
    if len(segment) < 6:
        raise UnusualError("frame")
    precision, header.height, header.width, count = struct.unpack_from(">BHHB", segment)
    if precision != 8 or count not in (1, 3) or len(segment) != 6 + 3 * count or not header.height:
        raise UnusualError("frame")
    for identifier, sampling, table in struct.iter_unpack("BBB", segment[6:]):
        header.components[identifier] = (sampling >> 4, sampling & 15, table)
    factors = [(h, v) for h, v, _ in header.components.values()]
    if len(factors) != count or not {factor for pair in factors for factor in pair} <= {1, 2}:
        raise UnusualError("sampling")
    if sum(h * v for h, v in factors) > MOST_BLOCKS:
        raise UnusualError("blocks")


def _read_huffman(header: JpegHeader, segment: bytes) -> None:
    while segment:
        number, counts = segment[0], segment[1:17]
        symbols = segment[17 : 17 + sum(counts)]
        if number & 0xEF > 3 or len(counts) != 16 or not 0 < sum(counts) == len(symbols) <= 256:
            raise UnusualError("Huffman table")
        code = 0
        for bits, count in enumerate(counts, start=1):
            code = 2 * code + count
            if code >= 1 << bits:
                raise UnusualError("Huffman code")
        if number < 16 and max(symbols) > 15:
            raise UnusualError("Huffman symbol")
        header.huffman.add(number)
        segment = segment[17 + len(symbols) :]


def _read_quantisation(header: JpegHeader, segment: bytes) -> None:
    while segment:
        if segment[0] > 3 or len(segment) < 65:
            raise UnusualError("quantisation table")
        header.quantisation.add(segment[0])
        segment = segment[65:]


def _read_scan(header: JpegHeader, segment: bytes) -> None:
    count = len(header.components)
    if not count or len(segment) != 4 + 2 * count or segment[0] != count or segment[-3:] != b"\0\x3f\0":
        raise UnusualError("scan")
    scanned = dict(struct.iter_unpack("BB", segment[1:-3]))
    if scanned.keys() != header.components.keys():
        raise UnusualError("scan components")
    for identifier, tables in scanned.items():
        known = {tables >> 4, 16 + (tables & 15)} <= header.huffman
        if not known or header.components[identifier][2] not in header.quantisation:
            raise UnusualError("scan tables")
