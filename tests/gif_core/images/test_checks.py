import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.images import BadImageError, ImageLimits, check_image
from gif_core.images import checks as image_files
from gif_core.images.checks import check_decodes
from gif_core.synthetic import draw_jpeg

LIMITS = ImageLimits(16, 4096)
REAL = Path(__file__).parents[4] / "shared" / "data" / "faces_299"
NOISE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8), (3, 3), 0)


def encode(ending: str, *options: int, image: np.ndarray = NOISE) -> bytes:
    encoded: bytes = cv2.imencode(f".{ending}", image, options)[1].tobytes()
    return encoded


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def with_segments(content: bytes, *segments: bytes) -> bytes:
    """A JPEG with more segments before its own."""
    return content[:2] + b"".join(segments) + content[2:]


def exif(thumbnail: bytes = b"") -> bytes:
    """A segment that says how the camera was held (as usual), and a small image in it."""
    tiff = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 0x112, 3, 1, 1, 0) + bytes(4)
    return segment(0xE1, b"Exif\0\0" + tiff + thumbnail)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


BASELINE = encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 80)
PROGRESSIVE = encode("jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
PNG, BMP = encode("png"), encode("bmp")
SAMPLINGS = (0x111111, 0x211111, 0x221111, 0x121111, 0x411111)

SOUND = {
    "baseline": BASELINE,
    "progressive": PROGRESSIVE,
    "grey": encode("jpg", image=NOISE[..., 0]),
    "grey and progressive": encode("jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1, image=NOISE[..., 0]),
    "own tables": encode("jpg", cv2.IMWRITE_JPEG_OPTIMIZE, 1),
    "restarts": encode("jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
    "restarts and progressive": encode("jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 1, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "worst quality": encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 1),
    "best quality": encode("jpg", cv2.IMWRITE_JPEG_QUALITY, 100),
    "one colour": encode("jpg", cv2.IMWRITE_JPEG_OPTIMIZE, 1, image=np.full((64, 64), 128, np.uint8)),
    "EXIF": with_segments(BASELINE, exif()),
    "EXIF with a thumbnail": with_segments(BASELINE, exif(encode("jpg", image=NOISE[:16, :16]))),
    "EXIF with a thumbnail, progressive": with_segments(PROGRESSIVE, exif(BASELINE)),
    "comment": with_segments(BASELINE, segment(0xFE, b"a comment")),
    "a scan in a comment": with_segments(BASELINE, segment(0xFE, b"\xff\xda\xff\xff")),
    "a short scan in a comment": with_segments(BASELINE, segment(0xFE, b"\xff\xda\0\x03" + bytes(9))),
    "a profile of many segments": with_segments(BASELINE, *[segment(0xE2, bytes(60_000))] * 5),
    "fill bytes": BASELINE[:2] + b"\xff" * 1000 + BASELINE[2:],
    "bytes after the end": BASELINE + bytes(1000),
    "another image after the end": BASELINE + BASELINE,
    "PNG": PNG,
    "grey PNG": encode("png", image=NOISE[..., 0]),
    "PNG of 16 bits": encode("png", image=NOISE.astype(np.uint16) * 257),
    "PNG with alpha": encode("png", image=np.dstack([NOISE, NOISE[..., 0]])),
    "PNG with more chunks": PNG[:33] + chunk(b"tEXt", b"Comment\0x") + chunk(b"prVt", b"IEND") + PNG[33:],
    "WebP": encode("webp", cv2.IMWRITE_WEBP_QUALITY, 80),
    "lossless WebP": encode("webp", cv2.IMWRITE_WEBP_QUALITY, 101),
    "WebP with alpha": encode("webp", cv2.IMWRITE_WEBP_QUALITY, 80, image=np.dstack([NOISE, NOISE[..., 0]])),
    "BMP": BMP,
    "grey BMP": encode("bmp", image=NOISE[..., 0]),
    "BMP from top to bottom": BMP[:22] + struct.pack("<i", -24) + BMP[26:],
    **{f"sampling {s:x}": encode("jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, s) for s in SAMPLINGS},
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_images_are_accepted_and_decode(name: str) -> None:
    check_image(SOUND[name], LIMITS)
    image = cv2.imdecode(np.frombuffer(SOUND[name], np.uint8), cv2.IMREAD_COLOR)
    assert image.shape[:2] in ((24, 24), (64, 64))


@pytest.mark.parametrize("name", [name for name in SOUND if "after the end" not in name])
def test_no_beginning_of_a_sound_image_is_accepted(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    content = SOUND[name]
    step = max(len(content) // 1500, 1)
    for length in [*range(1, len(content) - 8, step), *range(len(content) - 8, len(content))]:
        with pytest.raises(BadImageError):
            check_image(content[:length], LIMITS)
    capfd.readouterr()


def test_a_cmyk_jpeg_is_accepted(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(NOISE).convert("CMYK").save(tmp_path / "x.jpg")
    content = (tmp_path / "x.jpg").read_bytes()
    check_image(content, LIMITS)
    with pytest.raises(BadImageError, match="truncated: no end-of-image marker"):
        check_image(content[:-2], LIMITS)


def test_an_old_bmp_has_its_size_elsewhere() -> None:
    rows = NOISE[::-1].tobytes()
    old = b"BM" + struct.pack("<IIIIHHHH", 26 + len(rows), 0, 26, 12, 24, 24, 1, 24) + rows
    check_image(old, LIMITS)
    with pytest.raises(BadImageError, match="too small: 24×8,"):
        check_image(old[:20] + struct.pack("<H", 8) + old[22:], LIMITS)


@pytest.mark.parametrize(
    "content",
    [b"no image", b"GIF89a" + bytes(50), b"<html>" + bytes(50), b"BM", b"RIFF....WAVE" + bytes(50), b"II*\0", bytes(64),
     b"\xff", PNG[1:], b"\x00\x00\x00\x1cftypavif" + bytes(50)],
)  # fmt: skip
def test_what_is_no_image_of_a_known_kind_is_refused(content: bytes) -> None:
    with pytest.raises(BadImageError, match="not a JPEG, PNG, WebP or BMP file"):
        check_image(content, LIMITS)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(BadImageError, match="empty: the file has no bytes"):
        check_image(b"", LIMITS)


@pytest.mark.parametrize("name", ["baseline", "progressive", "grey", "restarts", "sampling 111111"])
def test_a_jpeg_without_its_end_is_truncated(name: str) -> None:
    for cut in (1, 2, 3, 50):
        with pytest.raises(BadImageError, match="truncated: no end-of-image marker"):
            check_image(SOUND[name][:-cut], LIMITS)


def test_the_end_of_a_thumbnail_is_not_that_of_the_image() -> None:
    for content in (BASELINE, PROGRESSIVE):
        whole = with_segments(content, exif(encode("jpg", image=NOISE[:16, :16])))
        with pytest.raises(BadImageError, match="truncated: no end-of-image marker"):
            check_image(whole[:-50], LIMITS)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_image_data_that_is_cut_off_and_closed_is_truncated(left: int) -> None:
    large = encode("jpg", image=cv2.resize(NOISE, (224, 224)))
    data = large.find(b"\xff\xda") + 14
    with pytest.raises(BadImageError, match="truncated: too little image data for its size"):
        check_image(large[: data + 90 * left] + b"\xff\xd9", LIMITS)


def test_a_marker_within_the_image_data_is_damage() -> None:
    data = BASELINE.find(b"\xff\xda") + 14
    for marker in (b"\xff\xd8", b"\xff\xc4", b"\xff\x01", b"\xff\xfe"):
        with pytest.raises(BadImageError, match=f"damaged: marker {marker.hex()} in the middle of the image data"):
            check_image(BASELINE[: data + 30] + marker + BASELINE[data + 30 :], LIMITS)


@pytest.mark.parametrize(("side", "kind"), [(15, "small"), (16, ""), (4096, ""), (4097, "large")])
@pytest.mark.parametrize("ending", ["jpg", "png", "bmp", "webp"])
def test_sides_beyond_the_limits_are_refused(ending: str, side: int, kind: str) -> None:
    for shape in ((side, 20), (20, side)):
        content = encode(ending, image=np.zeros((*shape, 3), np.uint8))
        if kind:
            with pytest.raises(BadImageError, match=f"too {kind}: {shape[1]}×{shape[0]}, the .* side allowed is"):
                check_image(content, LIMITS)
        else:
            check_image(content, LIMITS)


def bombs() -> dict[str, bytes]:
    """Small files that declare images of gigabytes."""
    size = struct.pack(">HH", 65_500, 65_500)
    frame, late_frame = BASELINE.find(b"\xff\xc0"), PROGRESSIVE.find(b"\xff\xc2")
    lossless = SOUND["lossless WebP"]
    vp8x = b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<II", 10, 0) + b"\xff\xff\xff" * 2
    return {
        "JPEG": BASELINE[: frame + 5] + size + BASELINE[frame + 9 :],
        "progressive JPEG": PROGRESSIVE[: late_frame + 5] + size + PROGRESSIVE[late_frame + 9 :],
        "JPEG of 12 bits": BASELINE[: frame + 4] + b"\x0c" + size + BASELINE[frame + 9 :],
        "PNG": PNG[:16] + struct.pack(">II", 60_000, 60_000) + PNG[24:],
        "PNG of the largest size": PNG[:16] + b"\xff" * 8 + PNG[24:],
        "BMP": BMP[:18] + struct.pack("<ii", 60_000, -60_000) + BMP[26:],
        "BMP of the lowest height": BMP[:18] + struct.pack("<ii", 24, -(2**31)) + BMP[26:],
        "WebP": vp8x + bytes(8),
        "lossless WebP": lossless[:21] + b"\xff\xff\xff\x0f" + lossless[25:],
    }


@pytest.mark.parametrize("name", bombs())
def test_declared_sizes_are_checked_before_anything_is_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "check_decodes", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(BadImageError, match="too large"):
        check_image(bombs()[name], LIMITS)


def test_a_frame_that_a_decoder_would_see_is_the_one_that_is_checked() -> None:
    """Markers without a length must not be taken for some that have one, behind which another frame would hide."""
    frame = PROGRESSIVE.find(b"\xff\xc2")
    large = PROGRESSIVE[frame : frame + 5] + struct.pack(">HH", 60_000, 60_000) + PROGRESSIVE[frame + 9 : frame + 19]
    for marker in (b"\xff\x01", b"\xff\xd0", b"\xff\xd8"):
        with pytest.raises(BadImageError, match=r"damaged|too large"):
            check_image(PROGRESSIVE[:2] + marker + large + bytes(70_000) + PROGRESSIVE[2:], LIMITS)


def test_a_frame_without_a_size_is_refused() -> None:
    frame = PROGRESSIVE.find(b"\xff\xc2")
    with pytest.raises(BadImageError, match="damaged: a JPEG file without a frame header"):
        check_image(PROGRESSIVE[:frame] + PROGRESSIVE[frame + 19 :], LIMITS)
    height = BASELINE.find(b"\xff\xc0") + 5
    with pytest.raises(BadImageError, match="too small: 24×0"):
        check_image(BASELINE[:height] + b"\0\0" + BASELINE[height + 2 :], LIMITS)


def test_a_png_chunk_is_as_long_as_the_file_at_most() -> None:
    for length in (0xFFFFFFFF, 0x7FFFFFFF, len(PNG)):
        with pytest.raises(BadImageError, match="truncated: a PNG file without its end"):
            check_image(PNG[:33] + struct.pack(">I", length) + PNG[37:], LIMITS)
        with pytest.raises(BadImageError, match="truncated: a PNG file without its end"):
            check_image(PNG[:-12] + struct.pack(">I", length) + PNG[-8:], LIMITS)


def test_a_png_without_its_header_is_damaged() -> None:
    with pytest.raises(BadImageError, match="damaged: a PNG file without a header"):
        check_image(PNG[:8] + chunk(b"IEND", b""), LIMITS)


def test_a_progressive_jpeg_has_so_many_scans_and_no_more() -> None:
    scan = PROGRESSIVE[PROGRESSIVE.rfind(b"\xff\xda") : -2]
    check_image(PROGRESSIVE[:-2] + scan * 50 + b"\xff\xd9", LIMITS)
    with pytest.raises(BadImageError, match="damaged: image data in more than 100 scans"):
        check_image(PROGRESSIVE[:-2] + scan * 100 + b"\xff\xd9", LIMITS)


def with_tables(content: bytes, number: int, counts: bytes, symbols: bytes) -> bytes:
    """A JPEG with another code table before its own scan."""
    scan = content.find(b"\xff\xda")
    table = segment(0xC4, bytes([number]) + counts.ljust(16, b"\0") + symbols)
    return content[:scan] + table + content[scan:]


@pytest.mark.parametrize(
    ("number", "counts", "symbols"),
    [
        (0, b"\2", b"\0\1"),  # a code of ones alone
        (0x10, b"\1\2", b"\0\1\2"),
        (0, b"\0\4", b"\0\1\2\3"),
        (0, b"\0\5", b"\0\1\2\3\4"),  # more codes than fit
        (0, b"\1", b"\x10"),  # no number of bits
        (4, b"\1", b"\0"),  # no such table
        (0, b"\1", b""),
    ],
)
def test_code_tables_that_a_decoder_refuses_are_refused(number: int, counts: bytes, symbols: bytes) -> None:
    content = with_tables(BASELINE, number, counts, symbols)
    assert cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is None
    with pytest.raises(BadImageError):
        check_image(content, LIMITS)


def test_more_blocks_at_a_time_than_a_decoder_takes_are_refused() -> None:
    frame = BASELINE.find(b"\xff\xc0")
    content = bytearray(BASELINE)
    for component in range(3):
        content[frame + 11 + 3 * component] = 0x22
    assert cv2.imdecode(np.frombuffer(bytes(content), np.uint8), cv2.IMREAD_COLOR) is None
    with pytest.raises(BadImageError, match="cannot be decoded"):
        check_image(bytes(content), LIMITS)


def test_the_usual_image_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "check_decodes", lambda _: pytest.fail("it was decoded"))
    for name in ("baseline", "grey", "own tables", "restarts", "EXIF", "comment", "bytes after the end"):
        check_image(SOUND[name], LIMITS)
    for person in range(5):
        check_image(draw_jpeg(0, person, 0), LIMITS)


def test_what_opencv_refuses_with_an_error_is_a_bad_image() -> None:
    with pytest.raises(BadImageError, match="cannot be decoded: "):
        check_decodes(b"")


def test_long_headers_are_not_remembered() -> None:
    image_files._plain_header.cache_clear()
    for number in range(3):
        check_image(with_segments(BASELINE, segment(0xE2, bytes([number]) * 60_000)), LIMITS)
    assert image_files._plain_header.cache_info().currsize == 0


def test_a_long_run_of_fill_bytes_is_skipped() -> None:
    check_image(PROGRESSIVE[:2] + b"\xff" * 2**25 + PROGRESSIVE[2:], LIMITS)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs photographs")
def test_real_photographs_are_accepted() -> None:
    paths = sorted(REAL.glob("*/*.jpg"))
    assert len(paths) > 6000
    for path in paths:
        check_image(path.read_bytes(), LIMITS)
