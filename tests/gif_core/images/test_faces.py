import gc
import threading
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.images import IMAGE_SIZE, Faces, decode
from gif_core.synthetic import draw_face, draw_jpeg

COUNT = 150


@pytest.fixture(scope="module")
def contents() -> list[bytes]:
    drawn = [draw_jpeg(0, person, 0) for person in range(15)]
    return [drawn[number % len(drawn)] for number in range(COUNT)]


@pytest.fixture(scope="module")
def shards(contents: list[bytes], tmp_path_factory: pytest.TempPathFactory, write_shard: Callable) -> list[Path]:
    """Two shards, of several record batches."""
    rows = [(number // 3, f"p{number // 3}/{number}.jpg", content) for number, content in enumerate(contents)]
    folder = tmp_path_factory.mktemp("faces")
    return [write_shard(folder / "a.arrow", rows[:70], 32), write_shard(folder / "b.arrow", rows[70:], 50)]


def pool_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("gif-faces")}


def test_every_row_is_found_with_its_bytes_name_and_identity(shards: list[Path], contents: list[bytes]) -> None:
    faces = Faces(shards)
    assert len(faces) == COUNT
    for row in range(COUNT):
        assert bytes(faces.content(row)) == contents[row]
        assert faces.name(row) == f"p{row // 3}/{row}.jpg"
        assert faces.labels_N[row] == row // 3


def test_content_is_a_view_of_the_mapped_file(shards: list[Path]) -> None:
    content = Faces(shards).content(5)
    assert content.readonly
    assert content.obj.base is not None
    assert not content.obj.flags.owndata


@pytest.mark.parametrize("row", [-1, COUNT, COUNT + 10])
def test_a_row_that_is_not_there_is_refused(shards: list[Path], row: int) -> None:
    with pytest.raises(IndexError, match=f"no face {row} among {COUNT}"):
        Faces(shards).content(row)


def test_images_come_in_the_order_asked_for_whatever_the_number_of_workers(shards: list[Path]) -> None:
    order = np.random.default_rng(0).permutation(COUNT)
    one, many = Faces(shards), Faces(shards, workers=4)
    assert np.array_equal(one.load(order), many.load(order))
    assert np.array_equal(one.load(order)[7], decode(one.content(int(order[7]))))


def test_no_rows_give_no_images(shards: list[Path]) -> None:
    assert Faces(shards, workers=2).load(np.empty(0, np.int64)).shape == (0, IMAGE_SIZE, IMAGE_SIZE, 3)
    assert len(Faces([])) == 0


def test_threads_stay_from_call_to_call_and_end_with_the_object(shards: list[Path]) -> None:
    before = pool_threads()
    faces = Faces(shards, workers=2)
    faces.load(np.arange(COUNT))
    kept = pool_threads() - before
    faces.load(np.arange(COUNT))
    assert kept
    assert len(pool_threads() - before) <= 2
    assert kept <= pool_threads()
    del faces
    gc.collect()
    for thread in kept:
        thread.join(5)
    assert not kept & pool_threads()


def test_more_faces_than_memory_are_the_same_faces(shards: list[Path]) -> None:
    large = Faces(shards, memory=1)
    assert not large.fits
    order = np.arange(COUNT)[::-1]
    assert np.array_equal(large.load(order), Faces(shards).load(order))


def test_mirrored_images_are_mirrored_and_the_others_are_not(shards: list[Path]) -> None:
    faces, rows = Faces(shards), np.arange(10)
    plain, images = faces.load(rows), np.empty((10, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    faces.fill(images, rows, rows % 2 == 0)
    for row in rows:
        assert np.array_equal(images[row], plain[row, :, ::-1] if row % 2 == 0 else plain[row])


def test_an_error_about_a_damaged_image_names_its_row_and_name(tmp_path: Path, write_shard: Callable) -> None:
    rows = [(0, "ann/1.jpg", draw_jpeg(0, 0, 0)), (0, "ann/2.jpg", b"no image"), (1, "bob/1.jpg", b"")]
    faces = Faces([write_shard(tmp_path / "a.arrow", rows, 10)])
    with pytest.raises(ValueError, match=r"face 1 \(ann/2.jpg\): not an image that can be decoded"):
        faces.load(np.arange(2))
    with pytest.raises(ValueError, match=r"face 2 \(bob/1.jpg\)"):
        faces.load(np.array([2]))


def test_pixels_are_rgb() -> None:
    image = draw_face(0, 1, 0)
    encoded = cv2.imencode(".png", image[:, :, ::-1])[1].tobytes()
    assert np.array_equal(decode(encoded), image)


def test_an_image_of_another_size_is_brought_to_112_by_area() -> None:
    image = np.zeros((224, 224, 3), np.uint8)
    image[::2, ::2] = 100
    small = decode(cv2.imencode(".png", image)[1].tobytes())
    assert small.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert (small == 25).all()
