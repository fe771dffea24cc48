import os
from pathlib import Path
from urllib.parse import unquote

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gif_core.writers import ExportInfo, Face, write_folder
from gif_core.writers.folder import folder_names

JPEG = b"\xff\xd8\xff\xe0"

letters = st.sampled_from([*"aAbBéÉ./%\\-~ :*\0\n", "..", "ß", "ss", "%-1", "person", "\u212a", "k"])
labels = st.lists(st.one_of(st.text(max_size=5), st.lists(letters, max_size=5).map("".join)), max_size=12)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, identities: list[str], faces: list[Face]) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    assert list(write_folder(faces, ExportInfo(identities, len(faces)), folder)) == list(range(1, len(faces) + 1))
    return tree(folder)


def test_each_identity_has_a_folder_and_numbers_of_its_own(tmp_path: Path) -> None:
    faces = [Face(1, JPEG + b"a"), Face(0, JPEG + b"b"), Face(1, JPEG + b"c")]
    written = write(tmp_path, ["ann", "bob"], faces)
    assert written == {"bob/000000.jpg": JPEG + b"a", "ann/000000.jpg": JPEG + b"b", "bob/000001.jpg": JPEG + b"c"}


@pytest.mark.parametrize("ending", ["jpg", "png", "bmp", "webp"])
def test_the_ending_is_that_of_the_image_itself(tmp_path: Path, ending: str) -> None:
    image = cv2.imencode(f".{ending}", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    assert list(write(tmp_path, ["ann"], [Face(0, memoryview(image))])) == [f"ann/000000.{ending}"]


@pytest.mark.parametrize("image", [b"", b"GIF89a", b"RIFF....WAVE"])
def test_what_is_no_known_image_is_refused(tmp_path: Path, image: bytes) -> None:
    with pytest.raises(ValueError, match=r"identity 0 begins with .* no JPEG"):
        write(tmp_path, ["ann"], [Face(0, image)])


@given(labels)
def test_any_labels_give_names_that_stay_inside_and_differ_in_any_case(identities: list[str]) -> None:
    names = folder_names(identities)
    assert len({name.casefold() for name in names}) == len(identities)
    for name in names:
        assert name.isascii()
        assert 0 < len(name) < 256
        assert not set(name) & set('/\\:*?"<>|\0 \n')
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert Path(os.path.normpath(f"/out/{name}/x")).parts == ("/", "out", name, "x")


@given(labels)
def test_the_label_can_be_read_back_from_the_name(identities: list[str]) -> None:
    for label, name in zip(identities, folder_names(identities), strict=True):
        assert unquote(name.partition("%-")[0]) == label


def test_names_that_are_safe_are_left_as_they_are() -> None:
    identities = ["Aaron_Peirsol", "m.0107_f", "n000002", "person-000001", "0"]
    assert folder_names(identities) == identities


def test_labels_that_lead_elsewhere_are_encoded() -> None:
    assert folder_names(["..", "../x", "/etc", ".hidden", "a\0b", "CON."]) == [
        "%2E%2E", "%2E.%2Fx", "%2Fetc", "%2Ehidden", "a%00b", "CON%2E"
    ]  # fmt: skip


def test_folders_of_equal_or_empty_labels_are_distinguished_by_the_identity_id() -> None:
    identities = ["ann", "Ann", "bob", "", "ann", "x" * 300]
    assert folder_names(identities) == ["ann%-0", "Ann%-1", "bob", "%-3", "ann%-4", "x" * 200 + "%-5"]


def test_hostile_labels_are_written_inside_the_folder_alone(tmp_path: Path) -> None:
    identities = ["../../escape", "/tmp/escape", "..", ".", "a/b", "\0", "", "é" * 300, "a", "A"]
    written = write(tmp_path / "out", identities, [Face(i, JPEG) for i in range(len(identities))])
    assert len(written) == len(identities)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert all(path.count("/") == 1 for path in written)
