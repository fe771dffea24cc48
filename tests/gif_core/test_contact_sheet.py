from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.contact_sheet import contact_sheet
from gif_core.faces import IMAGE_SIZE, Faces, ShardWriter

SHADES = {0: [20, 60, 100, 140, 180], 1: [240], 2: [30, 90]}


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Faces:
    """Three people whose images are each one shade of red."""
    folder = tmp_path_factory.mktemp("faces")
    writer = ShardWriter(folder, "identities", 2**20)
    for identity_id, shades in SHADES.items():
        for number, shade in enumerate(shades):
            image = np.zeros((IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
            image[:, :, 2] = shade
            writer.add(identity_id, f"{identity_id}/{number}", cv2.imencode(".png", image)[1].tobytes())
    writer.flush()
    return Faces([Path(path) for path in sorted(folder.glob("*.arrow"))])


def decode_sheet(content: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


def shades_of(sheet: np.ndarray, row: int) -> list[float]:
    """Mean red of every place in one row of the sheet."""
    strip = sheet[row * IMAGE_SIZE : (row + 1) * IMAGE_SIZE, :, 0]
    return [float(place.mean()) for place in np.split(strip, strip.shape[1] // IMAGE_SIZE, axis=1)]


def test_sheet_has_one_row_for_each_identity_in_the_order_asked_for(faces: Faces) -> None:
    sheet = decode_sheet(contact_sheet(faces, [2, 0], columns=2))
    assert sheet.shape == (2 * IMAGE_SIZE, 2 * IMAGE_SIZE, 3)
    assert shades_of(sheet, 0) == pytest.approx([30, 90], abs=3)
    assert shades_of(sheet, 1) == pytest.approx([20, 180], abs=3)


def test_faces_are_spread_over_all_that_the_identity_has(faces: Faces) -> None:
    assert shades_of(decode_sheet(contact_sheet(faces, [0], columns=3)), 0) == pytest.approx([20, 100, 180], abs=3)


def test_sheet_is_no_wider_than_its_fullest_row(faces: Faces) -> None:
    sheet = decode_sheet(contact_sheet(faces, [1, 2], columns=8))
    assert sheet.shape[1] == 2 * IMAGE_SIZE
    assert shades_of(sheet, 0) == pytest.approx([240, 128], abs=3)


def test_same_faces_give_the_same_bytes(faces: Faces) -> None:
    assert contact_sheet(faces, [0, 1], columns=4) == contact_sheet(faces, [0, 1], columns=4)


def test_unknown_identity_is_refused_by_name(faces: Faces) -> None:
    with pytest.raises(ValueError, match="identity 9 has no faces"):
        contact_sheet(faces, [9], columns=4)


@pytest.mark.parametrize(("rows", "columns"), [([], 4), ([0], 0)])
def test_empty_sheet_is_refused(faces: Faces, rows: list[int], columns: int) -> None:
    with pytest.raises(ValueError, match="has no faces"):
        contact_sheet(faces, rows, columns)
