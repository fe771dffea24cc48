"""Fast checks of image files: whether their bytes can be trained on.

A baseline JPEG is checked by its structure, which is many times faster than decoding: markers, tables and sizes must be
such that a decoder cannot fail, and the image data must reach the end marker. (Decoders do not check that: they fill
missing data with grey.) Any other image is decoded.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import cv2
import numpy as np

START: Final = b"\xff\xd8"
END: Final = b"\xff\xd9"
SCAN: Final = b"\xff\xda"
PNG: Final = b"\x89PNG\r\n\x1a\n"
MARKER: Final = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""A byte pair that ends JPEG image data; inside the data, 0xFF is followed by 0x00 or a restart marker."""
SEGMENT: Final = re.compile(rb"\xff+([\xc0-\xcf\xda-\xfe])(..)", re.DOTALL)
"""A marker with its length; any number of fill bytes 0xFF may precede it."""
BASELINE: Final = frozenset({0xC0, 0xC1})
FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
SKIPPED: Final = frozenset({*range(0xE0, 0xF0), 0xFE})
RESTARTS: Final = (0xDD, 2)
MOST_BLOCKS: Final = 10
"""Most blocks of all components in one minimum coded unit."""
MOST_SCANS: Final = 100
"""Limit of scans: a decoder processes the whole image for each. A progressive JPEG has about ten."""
REMEMBERED: Final = 2**14
"""Largest header that is cached, in bytes: longer ones are rarely equal and take much memory."""


class BadImageError(ValueError):
    """An image file cannot be used; the message is the reason in the quarantine table."""


@dataclass(frozen=True)
class ImageLimits:
    """Smallest and largest side of an image, in pixels."""

    smallest: int
    largest: int

    def check(self, width: int, height: int) -> None:
        """Reject an image too small to show a face or too large to decode safely."""
        if min(width, height) < self.smallest:
            raise BadImageError(f"too small: {width}×{height}, the smallest side allowed is {self.smallest}")
        if max(width, height) > self.largest:
            raise BadImageError(f"too large: {width}×{height}, the largest side allowed is {self.largest}")


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
    limits.check(*_declared_size(content))
    check_decodes(content)
    return None


def check_size(content: bytes, limits: ImageLimits) -> None:
    """Raise BadImageError if the file declares a size beyond the limits; it is not decoded."""
    width, height = _frame_and_scan(content)[:2] if content.startswith(START) else _declared_size(content)
    limits.check(width, height)


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
    width, height, data = _frame_and_scan(content)
    limits.check(width, height)
    if content.find(END, data) < 0:
        raise BadImageError("truncated: no end-of-image marker")
    if content.count(SCAN, data) >= MOST_SCANS:
        raise BadImageError(f"damaged: image data in more than {MOST_SCANS} scans")
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
    position, marker = 2, 0
    while marker != 0xDA:
        if position + 4 > len(content) or content[position] != 0xFF:
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


def _frame_and_scan(content: bytes) -> tuple[int, int, int]:
    """Width and height of the first frame, and the position of the first scan's data."""
    position, marker, size = 2, 0, (0, 0)
    while marker != 0xDA:
        found = SEGMENT.match(content, position)
        if found is None:
            raise BadImageError("damaged: a JPEG file with something else where a marker should be")
        marker, start = found.group(1)[0], found.end()
        if marker in FRAMES and size == (0, 0):
            size = struct.unpack(">HH", content[start + 1 : start + 5].ljust(4, b"\0"))
        position = start - 2 + max(2, int.from_bytes(found.group(2), "big"))
    if size == (0, 0):
        raise BadImageError("damaged: a JPEG file without a frame header")
    return size[1], size[0], position


def _declared_size(content: bytes) -> tuple[int, int]:
    """Width and height that a PNG, WebP or BMP file declares."""
    if content.startswith(PNG):
        return _png_size(content)
    if content.startswith(b"BM") and len(content) >= 26:
        return _bmp_size(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP" and len(content) >= 30:
        return _webp_size(content)
    raise BadImageError("not a JPEG, PNG, WebP or BMP file")


def _png_size(content: bytes) -> tuple[int, int]:
    """The size, if all chunks are complete: OpenCV allocates a chunk before it checks that it exists."""
    position, kind = len(PNG), b""
    while kind != b"IEND":
        kind = content[position + 4 : position + 8]
        position += 12 + int.from_bytes(content[position : position + 4], "big")
        if position > len(content):
            raise BadImageError("truncated: a PNG file without its end")
    if content[12:16] != b"IHDR" or len(content) < 45:
        raise BadImageError("damaged: a PNG file without a header")
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _bmp_size(content: bytes) -> tuple[int, int]:
    """The size; a negative height means that the top row comes first."""
    old = int.from_bytes(content[14:18], "little") == 12
    width, height = struct.unpack_from("<HH" if old else "<ii", content, 18)
    return abs(width), abs(height)


def _webp_size(content: bytes) -> tuple[int, int]:
    if 8 + int.from_bytes(content[4:8], "little") > len(content):
        raise BadImageError("truncated: a WebP file shorter than it declares")
    kind = content[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise BadImageError("damaged: a WebP file without an image")
