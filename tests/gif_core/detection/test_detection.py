"""Faces are found in real photographs by the real detector, aligned, and what is doubtful about them is said."""

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.detection import (
    DetectorMissingError,
    NoFaceError,
    doubt_alignment,
    draw_faces,
    encode_picture,
    find_detector,
    find_faces,
    install_detector,
    open_detector,
)
from gif_core.images import decode_bounded
from gif_core.images.alignment import TEMPLATE
from schemas.errors import GifError


def pixels(path: Path) -> NDArray[np.uint8]:
    return decode_bounded(path.read_bytes())


def everybody(photographs: Path) -> list[NDArray[np.uint8]]:
    return [pixels(path) for path in sorted(photographs.glob("*/*.jpg"))]


@pytest.mark.usefixtures("detector")
def test_one_face_is_found_in_every_photograph_and_its_landmarks_land_on_the_template(photographs: Path) -> None:
    images = everybody(photographs)
    assert len(images) == 27
    errors = []
    for image in images:
        (face,) = find_faces(image)
        assert face.pixels_HWC.shape == (112, 112, 3)
        assert face.remarks == ()
        (again,) = find_faces(face.pixels_HWC, "detect")
        assert again.detection
        errors.append(np.abs(again.detection.points_52 - TEMPLATE).mean())
    assert np.median(errors) < 4


@pytest.mark.usefixtures("detector")
def test_a_photograph_that_was_scaled_to_the_size_of_an_aligned_face_is_remarked(photographs: Path) -> None:
    images = everybody(photographs)
    assert {doubt_alignment(find_faces(image)[0].pixels_HWC) for image in images} == {""}
    doubts = [doubt_alignment(find_faces(image, "aligned")[0].pixels_HWC) for image in images]
    assert sum("does not look like an aligned face: its face is" in doubt for doubt in doubts) >= 0.9 * len(images)
    assert "no face is found in it" in doubt_alignment(np.zeros((112, 112, 3), np.uint8))


@pytest.mark.usefixtures("no_detector")
def test_without_a_detector_nothing_is_said_against_an_aligned_face() -> None:
    assert doubt_alignment(np.zeros((112, 112, 3), np.uint8)) == ""


@pytest.mark.usefixtures("detector")
def test_faces_are_found_at_every_size_of_the_photograph(photographs: Path) -> None:
    images = everybody(photographs)[:24]
    crowd = np.concatenate([np.concatenate(images[start : start + 6], axis=1) for start in range(0, 24, 6)])
    assert len(find_faces(crowd)) == 24
    assert len(find_faces(cv2.resize(crowd, None, fx=2, fy=2))) == 24
    close_up = cv2.resize(images[0][60:200, 60:180], None, fx=10, fy=10)
    assert len(find_faces(close_up)) == 1
    found = open_detector().find(crowd)
    assert [face.area for face in found] == sorted((face.area for face in found), reverse=True)


@pytest.mark.usefixtures("detector")
def test_threads_find_the_same_faces_as_one_thread(photographs: Path) -> None:
    images = everybody(photographs)[:8]
    alone = [find_faces(image)[0].pixels_HWC for image in images]
    with ThreadPoolExecutor(4) as pool:
        together = [faces[0].pixels_HWC for faces in pool.map(find_faces, images)]
    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))


@pytest.mark.usefixtures("detector")
def test_several_tiny_and_blurred_faces_are_remarked_and_count_less(photographs: Path) -> None:
    image = everybody(photographs)[0]
    (sharp,) = find_faces(image)
    (blurred,) = find_faces(cv2.GaussianBlur(image, (0, 0), 4))
    assert "blurred" in blurred.remarks[0]
    (tiny,) = find_faces(cv2.resize(image, (70, 70), interpolation=cv2.INTER_AREA))
    assert any(remark.startswith("tiny: 1") for remark in tiny.remarks)
    pair = find_faces(np.concatenate([image, image], axis=1))
    assert [face.remarks for face in pair] == [("one of 2 faces",)] * 2
    assert 0.5 < sharp.quality <= 1
    assert max(tiny.quality, blurred.quality) < 0.5 * sharp.quality


@pytest.mark.usefixtures("detector")
def test_an_image_without_a_face_is_an_error_and_aligned_images_pass() -> None:
    with pytest.raises(NoFaceError, match="no face was found in this image of 300×200 pixels"):
        find_faces(np.zeros((200, 300, 3), np.uint8))
    aligned = np.random.default_rng(0).integers(0, 255, (112, 112, 3), np.uint8)
    (face,) = find_faces(aligned)
    assert face.detection is None
    assert face.pixels_HWC is aligned
    with pytest.raises(NoFaceError):
        find_faces(aligned, "detect")
    with pytest.raises(GifError, match="known: auto, aligned, detect"):
        find_faces(aligned, "guess")  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_detector")
def test_without_a_detector_the_error_says_where_to_get_it() -> None:
    assert find_faces(np.zeros((112, 112, 3), np.uint8))[0].detection is None
    assert find_faces(np.zeros((200, 300, 3), np.uint8), "aligned")[0].pixels_HWC.shape == (112, 112, 3)
    with pytest.raises(DetectorMissingError, match=r"gif detector install.*https://github.com/opencv/opencv_zoo"):
        find_faces(np.zeros((200, 300, 3), np.uint8))


def test_only_the_expected_file_is_installed(detector: Path, tmp_path: Path, no_detector: Path) -> None:
    find_detector().unlink()
    (tmp_path / "other.onnx").write_bytes(detector.read_bytes()[:-1])
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    for name, reason in (("other", "a file with digest"), ("pointer", "Git LFS pointer"), ("none", "there is no file")):
        with pytest.raises(GifError, match=reason):
            install_detector(str(tmp_path / f"{name}.onnx"))
    with pytest.raises(DetectorMissingError):
        find_detector()
    assert not list(no_detector.rglob("*.onnx"))


def test_the_file_is_downloaded_and_an_error_of_the_server_is_told(detector: Path) -> None:
    find_detector().unlink()

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/yunet" else 404)
            self.end_headers()
            if self.path == "/yunet":
                self.wfile.write(detector.read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(GifError, match=r"cannot be downloaded .*404"):
            install_detector(f"{address}/nothing")
        assert install_detector(f"{address}/yunet").read_bytes() == detector.read_bytes()
        server.shutdown()


@pytest.mark.usefixtures("detector")
def test_a_damaged_installation_is_told(photographs: Path) -> None:
    from gif_core.detection import detector as module

    module._open.cache_clear()
    find_detector().write_bytes(b"damaged")
    with pytest.raises(GifError, match="expected SHA-256"):
        find_faces(everybody(photographs)[0])


@pytest.mark.usefixtures("detector")
def test_a_drawn_photograph_has_the_box_in_the_colour_of_its_answer(photographs: Path) -> None:
    image = everybody(photographs)[0]
    detections = open_detector().find(image)
    drawn = draw_faces(image, detections, ["Zoë"], [True])
    assert drawn.shape == (480, 480, 3)
    left, top, width, height = (round(480 / 250 * each) for each in detections[0].box)
    assert drawn[top + height, left + width // 2].tolist() == [40, 180, 60]
    unknown = draw_faces(image, detections, ["unknown"], [False])
    assert unknown[top + height, left + width // 2].tolist() == [230, 140, 20]
    assert np.array_equal(decode_bounded(encode_picture(drawn, ".png")), drawn)
