"""Image files of a few kilobytes that would take gigabytes or minutes to decode are refused at once."""

import resource
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.images import LIMITS, BadImageError, ImageLimits, check_image, decode_bounded, read_face
from gif_core.images.bounds import MOST_PIXELS, check_bounds
from gif_core.readers import open_reader
from schemas.ingestion import FolderSource

POINTS = np.array([[30.0, 40], [70, 40], [50, 60], [35, 80], [65, 80]])


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(rows: bytes, *chunks: bytes, side: int = 24, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, interlaced))
    data = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + data + chunk(b"IEND", b"")


def progressive(side: int, scans: int) -> bytes:
    """A black progressive JPEG whose last scan is repeated, declared to be of this size."""
    options = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111]
    content: bytes = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8), options)[1].tobytes()
    content = content.replace(struct.pack(">HH", 16, 16), struct.pack(">HH", side, side), 1)
    return content[:-2] + content[content.rfind(b"\xff\xda") : -2] * scans + content[-2:]


def texts(kind: bytes, before: bytes, count: int) -> list[bytes]:
    return [chunk(kind, before + zlib.compress(bytes(7_000_000), 9))] * count


COMMENT = b"\xff\xfe\0\2"
BASELINE = cv2.imencode(".jpg", np.zeros((24, 24, 3), np.uint8))[1].tobytes()
BLACK = bytes(24 * 73)
BOMBS = {
    "4,000 scans": (progressive(2048, 4000), "more than 100 scans"),
    "8192² in three components": (progressive(8192, 1), "too large: 8192×8192 is more than 50,000,000 pixels"),
    "IDAT of 50 MB": (png(bytes(50_000_000)), "inflates beyond the 1752 bytes of 24×24 pixels"),
    "zTXt": (png(BLACK, *texts(b"zTXt", b"a\0\0", 100)), "texts that inflate"),
    "iTXt": (png(BLACK, *texts(b"iTXt", b"a\0\1\0en\0a\0", 100)), "texts that inflate"),
    "a million segments": (progressive(24, 1)[:2] + COMMENT * 2**20 + progressive(24, 1)[2:], "frame header|segments"),
    "a million segments, baseline": (BASELINE[:2] + COMMENT * 2**20 + BASELINE[2:], "frame header|segments"),
    "130,000 chunks": (png(BLACK, chunk(b"prVt", b"") * 2**17), "more than 65536 chunks"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_image_bomb_is_refused_without_memory_before_it_is_decoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, reason = BOMBS[name]
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("it was decoded"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_face, lambda bomb: read_face(bomb, POINTS), lambda bomb: check_image(bomb, LIMITS)):
        with pytest.raises(BadImageError, match=reason):
            read(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_folder_with_landmarks_keeps_largest_side(tmp_path: Path) -> None:
    (tmp_path / "photos/ann").mkdir(parents=True)
    (tmp_path / "photos/ann/1.jpg").write_bytes(progressive(5000, 1))
    line = " ".join(f"{value:.0f}" for value in POINTS.reshape(-1))
    (tmp_path / "points.txt").write_text(f"ann/1.jpg {line}\n")
    source = FolderSource(path=str(tmp_path / "photos"), landmarks=str(tmp_path / "points.txt"))
    (found,) = open_reader(source, ImageLimits(16, 4096)).read(np.array([0]))
    assert str(found) == "too large: 5000×5000, the largest side allowed is 4096"


def test_every_kind_of_png_that_opencv_writes_and_interlaced_ones_are_within_the_bounds() -> None:
    for side in (1, 2, 3, 5, 8, 23, 24):
        for colour, channels in {0: 1, 2: 3, 4: 2, 6: 4}.items():
            for depth in (8, 16):
                rows = bytes(side * (1 + side * channels * depth // 8))
                check_bounds(png(rows, side=side, depth=depth, colour=colour), LIMITS)
    adam7 = sum(-(-(8 - y) // sy) * (1 + 3 * -(-(8 - x) // sx)) for x, y, sx, sy in ADAM7)
    image = png(bytes(adam7), side=8, interlaced=1)
    assert decode_bounded(image).shape == (8, 8, 3)
    with pytest.raises(BadImageError, match="inflates beyond"):
        check_bounds(png(bytes(adam7 + 1), side=8, interlaced=1), LIMITS)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def test_a_photograph_of_48_megapixels_is_within_the_bounds() -> None:
    assert MOST_PIXELS >= 8064 * 6048
    LIMITS.check(8064, 6048)


def test_a_video_behind_a_photograph_does_not_count_as_its_scans() -> None:
    """Telephones append a film or a second photograph to a JPEG."""
    check_bounds(progressive(24, 1) + b"\xff\xda\0\4" * 1000, LIMITS)
