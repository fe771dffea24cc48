"""Bounds on decoding an image file from outside: its cost is known before a decoder sees it.

A file of a few kilobytes can declare gigabytes of pixels, hold thousands of scans that each visit the whole image, or
inflate without end. Everything that makes decoding expensive is read from the file's structure and limited here.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gif_core.images.source_files import LARGEST_IMAGE

START: Final = b"\xff\xd8"
END: Final = b"\xff\xd9"
PNG: Final = b"\x89PNG\r\n\x1a\n"
MARKER: Final = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""A byte pair that ends JPEG image data; inside the data, 0xFF is followed by 0x00 or a restart marker."""
SEGMENT: Final = re.compile(rb"\xff+([\xc0-\xcf\xda-\xfe])(..)", re.DOTALL)
"""A marker with its length; any number of fill bytes 0xFF may precede it."""
FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
SCAN_MARKER: Final = 0xDA
MOST_PIXELS: Final = 50_000_000
"""Photographs of 48 megapixels are within it; decoding a progressive JPEG of this size takes 450 MB."""
MOST_SCANS: Final = 100
"""A decoder visits the whole image for each scan. A progressive JPEG has about ten."""
MOST_SEGMENTS: Final = 2**13
"""Segments of a JPEG, which has a few hundred at most."""
FEW_BYTES: Final = 2**16
"""Bytes of a small image file."""
MOST_CHUNKS: Final = 2**16
"""Chunks of a PNG: enough for its largest file in pieces of a kilobyte."""
MOST_TEXT: Final = 16 * 2**20
"""Bytes to which the compressed texts and profiles of a PNG may inflate; libpng inflates each of them."""
CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Values of a pixel, by PNG colour type."""
PASSES: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row, and steps between columns and rows, of the seven passes of an interlaced PNG."""
PIECE: Final = 2**20
"""Bytes that are inflated at a time."""


class BadImageError(ValueError):
    """An image file cannot be used; the message is the reason in the quarantine table."""


@dataclass(frozen=True)
class ImageLimits:
    """Smallest and largest side of an image, in pixels; `MOST_PIXELS` holds for every image."""

    smallest: int
    largest: int

    def check(self, width: int, height: int) -> None:
        """Reject an image too small to show a face or too large to decode safely."""
        if min(width, height) < self.smallest:
            raise BadImageError(f"too small: {width}×{height}, the smallest side allowed is {self.smallest}")
        if max(width, height) > self.largest:
            raise BadImageError(f"too large: {width}×{height}, the largest side allowed is {self.largest}")
        if width * height > MOST_PIXELS:
            raise BadImageError(f"too large: {width}×{height} is more than {MOST_PIXELS:,} pixels")


def check_bounds(content: bytes, limits: ImageLimits) -> None:
    """Raise BadImageError unless decoding the file is cheap enough: bytes, pixels, scans and inflated bytes."""
    if len(content) > LARGEST_IMAGE:
        raise BadImageError(f"too large: a file of {len(content)} bytes")
    if content.startswith(START):
        width, height, data = frame_and_scan(content)
        limits.check(width, height)
        _check_scans(content, data)
    elif content.startswith(PNG):
        _check_png(content, limits)
    else:
        limits.check(*_declared_size(content))


def frame_and_scan(content: bytes) -> tuple[int, int, int]:
    """Width and height of the first frame, and the position of the first scan's data."""
    position, marker, size = 2, 0, (0, 0)
    for _ in range(MOST_SEGMENTS):
        marker, start, position = _segment(content, position)
        if marker == SCAN_MARKER:
            break
        if marker in FRAMES and size == (0, 0):
            size = struct.unpack(">HH", content[start + 1 : start + 5].ljust(4, b"\0"))
    if size == (0, 0):
        raise BadImageError("damaged: a JPEG file without a frame header")
    if marker != SCAN_MARKER:
        raise BadImageError(f"damaged: a JPEG file of more than {MOST_SEGMENTS} segments")
    return size[1], size[0], position


def is_small_jpeg(content: bytes, side: int) -> bool:
    """Whether this is a JPEG file of `side` × `side` pixels and few bytes: decoding takes 0.1 ms."""
    if len(content) > FEW_BYTES or not content.startswith(START):
        return False
    try:
        return frame_and_scan(content)[:2] == (side, side)
    except BadImageError:
        return False


def _segment(content: bytes, position: int) -> tuple[int, int, int]:
    """Marker of the segment at `position`, where its content starts, and where it ends."""
    found = SEGMENT.match(content, position)
    if found is None:
        raise BadImageError("damaged: a JPEG file with something else where a marker should be")
    return found.group(1)[0], found.end(), found.end() - 2 + max(2, int.from_bytes(found.group(2), "big"))


def _check_scans(content: bytes, position: int) -> None:
    """Count the scans from the data of the first one to the end of the image."""
    scans = 1
    for _ in range(MOST_SEGMENTS):
        found = MARKER.search(content, position)
        if found is None or found.group() == END:
            return
        following = SEGMENT.match(content, found.start())
        if following is None:
            position = found.end()
            continue
        position = following.end() - 2 + max(2, int.from_bytes(following.group(2), "big"))
        scans += following.group(1)[0] == SCAN_MARKER
        if scans > MOST_SCANS:
            raise BadImageError(f"damaged: image data in more than {MOST_SCANS} scans")
    raise BadImageError(f"damaged: a JPEG file of more than {MOST_SEGMENTS} segments")


def _check_png(content: bytes, limits: ImageLimits) -> None:
    """Check the declared size, then how far image data and compressed texts inflate."""
    chunks = list(_png_chunks(content))
    if len(content) < 45 or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise BadImageError("damaged: a PNG file without a header")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    limits.check(width, height)
    if colour not in CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise BadImageError("damaged: a PNG file of no known kind of pixels")
    expected = _raster_bytes(width, height, CHANNELS[colour] * depth, interlaced=bool(interlaced))
    inflated = _inflated((data for kind, data in chunks if kind == b"IDAT"), expected)
    if inflated > expected:
        raise BadImageError(f"damaged: image data that inflates beyond the {expected} bytes of {width}×{height} pixels")
    left = MOST_TEXT
    for kind, data in chunks:
        left -= _inflated([_compressed(kind, data)], left)
        if left < 0:
            raise BadImageError(f"damaged: texts that inflate to more than {MOST_TEXT} bytes")


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Kind and data of every chunk, if all are complete: OpenCV allocates a chunk before it checks that it exists."""
    position, view = len(PNG), memoryview(content)
    for _ in range(MOST_CHUNKS):
        kind, start = content[position + 4 : position + 8], position + 8
        position += 12 + int.from_bytes(content[position : position + 4], "big")
        if position > len(content):
            raise BadImageError("truncated: a PNG file without its end")
        yield kind, view[start : position - 4]
        if kind == b"IEND":
            return
    raise BadImageError(f"damaged: a PNG file of more than {MOST_CHUNKS} chunks")


def _raster_bytes(width: int, height: int, bits: int, *, interlaced: bool) -> int:
    """Bytes of the image data before compression: every row of every pass starts with the number of its filter."""
    total = 0
    for first_x, first_y, step_x, step_y in PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - first_x) // step_x), -(-(height - first_y) // step_y)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total


def _compressed(kind: bytes, data: memoryview) -> bytes:
    """The compressed part of a text or profile; empty for other chunks and for text that is not compressed."""
    if kind not in (b"zTXt", b"iCCP", b"iTXt"):
        return b""
    _, _, rest = bytes(data).partition(b"\0")
    if kind != b"iTXt":
        return rest[1:]
    return rest[2:].partition(b"\0")[2].partition(b"\0")[2] if rest[:1] == b"\1" else b""


def _inflated(pieces: Iterator[memoryview] | list[bytes], most: int) -> int:
    """Bytes to which compressed data inflates, counted up to the first piece beyond `most`."""
    stream, total = zlib.decompressobj(), 0
    try:
        for piece in pieces:
            data: bytes | memoryview = piece
            while data and total <= most:
                total += len(stream.decompress(data, PIECE))
                data = stream.unconsumed_tail
    except zlib.error:
        pass  # the decoder reports damage; this only counts
    return total


def _declared_size(content: bytes) -> tuple[int, int]:
    """Width and height that a WebP or BMP file declares."""
    if content.startswith(b"BM") and len(content) >= 26:
        return _bmp_size(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP" and len(content) >= 30:
        return _webp_size(content)
    raise BadImageError("not a JPEG, PNG, WebP or BMP file")


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
