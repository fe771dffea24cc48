"""Images of third-party files: none is decoded that declares more than can be decoded safely."""

import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.images import Images, Landmarks, SourceFile, read_face, read_face_file
from gif_core.protocols.sets import EvaluationFiles, IjbImages
from gif_core.protocols.sets.files import EvaluationFileError
from gif_core.protocols.sets.ijb import IjbFaces
from gif_core.protocols.sets.lfw import FolderImages
from gif_core.protocols.sets.pair_set import EncodedImages

POINTS = np.array([[30.0, 40], [70, 40], [50, 60], [35, 80], [65, 80]])
SIDE = 32_000


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(side: int) -> bytes:
    """All black; a side of 32,000 has 3 MB as a file and 3 GB as pixels, of which this has but the first rows."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes((1 + 3 * side) * min(side, 8)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg_of(side: int) -> bytes:
    content: bytes = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes()
    return content.replace(struct.pack(">HH", 16, 16), struct.pack(">HH", side, side), 1)


def ijb_images(folder: Path, name: str) -> Images:
    none = np.zeros(1, np.int64)
    faces = IjbFaces("meta", [name], none, none, POINTS[None], np.ones(1), none)
    return IjbImages(EvaluationFiles(str(folder)), faces)


def folder_images(folder: Path, name: str, *, aligned: bool) -> Images:
    landmarks = None if aligned else Landmarks({name: POINTS}, SourceFile("points.txt", 0, ""))
    return FolderImages(EvaluationFiles(str(folder / "loose_crop")), [name], landmarks)


@pytest.mark.parametrize("content", [png_of(SIDE), jpeg_of(SIDE)], ids=["png", "jpeg"])
def test_an_image_that_declares_too_much_is_refused_by_name_wherever_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "loose_crop/huge.img"
    path.parent.mkdir()
    path.write_bytes(content)
    words = r"too large: 32000×32000, the largest side allowed is 8192"
    with pytest.raises(ValueError, match=rf"huge\.img: {words}"):
        read_face_file(path)
    readers = [folder_images(tmp_path, path.name, aligned=aligned) for aligned in (True, False)]
    for images in (*readers, ijb_images(tmp_path, path.name)):
        with pytest.raises(EvaluationFileError, match=rf"loose_crop/huge\.img: {words}"):
            images.load(np.array([0]))
    with pytest.raises(EvaluationFileError, match=rf"lfw\.bin, image 1: {words}"):
        EncodedImages("lfw.bin", [png_of(8), content]).load(np.array([0, 1]))


def test_a_pipe_or_a_device_in_place_of_an_image_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jpg")
    for path in (tmp_path / "fifo.jpg", Path("/dev/zero"), tmp_path):
        with pytest.raises(ValueError, match="not a regular file"):
            read_face_file(path)


@pytest.mark.parametrize("points", [None, POINTS])
def test_images_within_the_limits_are_faces(points: np.ndarray | None) -> None:
    grey = cv2.imencode(".jpg", np.full((90, 90, 3), 200, np.uint8))[1].tobytes()
    face = read_face(grey, points)
    assert face.shape == (112, 112, 3)
    assert abs(int(face[56, 56, 0]) - 200) <= 2
    with pytest.raises(ValueError, match="not a JPEG, PNG, WebP or BMP file"):
        read_face(b"", points)
