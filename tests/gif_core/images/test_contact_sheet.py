import cv2
import numpy as np
import pytest

from gif_core.images import IMAGE_SIZE, Faces, draw_contact_sheet
from gif_core.images.contact_sheet import MOST_ROWS
from gif_core.ingestion.shards import FaceBatch, ShardFile

SHADES = {0: [20, 60, 100, 140, 180], 1: [240], 2: [30, 90]}


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Faces:
    """Three identities whose images are each one shade of red."""
    path = tmp_path_factory.mktemp("faces") / "identities-00000.arrow"
    shard, file = FaceBatch(), ShardFile(path)
    for identity_id, shades in SHADES.items():
        for number, shade in enumerate(shades):
            image = np.zeros((IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
            image[:, :, 2] = shade
            shard.add(identity_id, [f"{identity_id}/{number}"], [cv2.imencode(".png", image)[1].tobytes()])
    file.write(shard)
    file.finish()
    return Faces([path])


def decode_sheet(content: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


def shades_of(sheet: np.ndarray, row: int) -> list[float]:
    """Mean red of every place in one row of the sheet."""
    strip = sheet[row * IMAGE_SIZE : (row + 1) * IMAGE_SIZE, :, 0]
    return [float(place.mean()) for place in np.split(strip, strip.shape[1] // IMAGE_SIZE, axis=1)]


def test_sheet_has_one_row_for_each_identity_in_the_order_asked_for(faces: Faces) -> None:
    sheet = decode_sheet(draw_contact_sheet(faces, [2, 0], columns=2))
    assert sheet.shape == (2 * IMAGE_SIZE, 2 * IMAGE_SIZE, 3)
    assert shades_of(sheet, 0) == pytest.approx([30, 90], abs=3)
    assert shades_of(sheet, 1) == pytest.approx([20, 180], abs=3)


def test_faces_are_spread_over_all_that_the_identity_has(faces: Faces) -> None:
    assert shades_of(decode_sheet(draw_contact_sheet(faces, [0], columns=3)), 0) == pytest.approx([20, 100, 180], abs=3)


def test_sheet_is_no_wider_than_its_fullest_row(faces: Faces) -> None:
    sheet = decode_sheet(draw_contact_sheet(faces, [1, 2], columns=8))
    assert sheet.shape[1] == 2 * IMAGE_SIZE
    assert shades_of(sheet, 0) == pytest.approx([240, 128], abs=3)


def test_same_faces_give_the_same_bytes(faces: Faces) -> None:
    assert draw_contact_sheet(faces, [0, 1], columns=4) == draw_contact_sheet(faces, [0, 1], columns=4)


def test_unknown_identity_is_refused_by_name(faces: Faces) -> None:
    with pytest.raises(ValueError, match="identity 9 has no faces"):
        draw_contact_sheet(faces, [9], columns=4)


@pytest.mark.parametrize(("rows", "columns"), [([], 4), ([0], 0)])
def test_empty_sheet_is_refused(faces: Faces, rows: list[int], columns: int) -> None:
    with pytest.raises(ValueError, match="has no faces"):
        draw_contact_sheet(faces, rows, columns)


def test_too_many_rows_are_refused(faces: Faces) -> None:
    with pytest.raises(ValueError, match="at most 584 rows, not 585"):
        draw_contact_sheet(faces, [0] * (MOST_ROWS + 1), 1)


def margin_of(sheet: np.ndarray) -> np.ndarray:
    """What stands to the left of two columns of faces."""
    return sheet[:, : sheet.shape[1] - 2 * IMAGE_SIZE]


def dark_rows(column: np.ndarray) -> np.ndarray:
    return np.flatnonzero((column < 128).any(axis=(1, 2)))


def test_captions_stand_to_the_left_and_leave_the_faces_as_they_are(faces: Faces) -> None:
    plain = decode_sheet(draw_contact_sheet(faces, [2, 0], 2, ending=".png"))
    sheet = decode_sheet(draw_contact_sheet(faces, [2, 0], 2, [["ann", "identity 2"], ["bob"]], ending=".png"))
    assert np.array_equal(sheet[:, -2 * IMAGE_SIZE :], plain)
    assert 60 < margin_of(sheet).shape[1] < 120


def test_a_caption_is_in_the_middle_of_its_own_row(faces: Faces) -> None:
    captions = [["first line", "second line", "third line"], [""], ["only line"]]
    margin = margin_of(decode_sheet(draw_contact_sheet(faces, [2, 0, 2], 2, captions, ".png")))
    three, none, one = (dark_rows(part) for part in np.split(margin, 3))
    assert abs(three.mean() - IMAGE_SIZE / 2) < 6
    assert three[-1] - three[0] > 2 * (one[-1] - one[0])
    assert len(none) == 0
    assert abs(one.mean() - IMAGE_SIZE / 2) < 6


def test_a_long_caption_is_shortened_in_the_middle(faces: Faces) -> None:
    margins = [
        margin_of(decode_sheet(draw_contact_sheet(faces, [2], 2, [[text]], ".png")))
        for text in ("begin" + 50 * "x" + "end", "begin" + 400 * "x" + "end")
    ]
    assert all(margin.shape[1] <= 216 for margin in margins)
    assert np.array_equal(*margins)


@pytest.mark.parametrize("label", ["Zoë Ångström", "李明", "a\0b\nc\td", "💥", "%", ""])
def test_any_label_can_be_a_caption(faces: Faces, label: str) -> None:
    sheet = decode_sheet(draw_contact_sheet(faces, [2], 2, [[label, "identity 2"]], ".png"))
    assert len(dark_rows(margin_of(sheet)))


@pytest.mark.parametrize(("ending", "start"), [(".jpg", b"\xff\xd8"), (".jpeg", b"\xff\xd8"), (".png", b"\x89PNG")])
def test_the_ending_says_how_the_sheet_is_encoded(faces: Faces, ending: str, start: bytes) -> None:
    assert draw_contact_sheet(faces, [0], 2, ending=ending).startswith(start)


def test_other_endings_are_refused(faces: Faces) -> None:
    with pytest.raises(ValueError, match=r"end in \.jpg, \.jpeg, \.png, not in '\.gif'"):
        draw_contact_sheet(faces, [0], 2, ending=".gif")
