"""Which images identification is measured on: new ones where there can be, and all identities's turn comes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gif_core.images import Faces, decode
from gif_core.recognition import choose_enrolled, choose_unknown
from gif_core.recognition.probes import take_turns
from gif_core.synthetic import draw_jpeg
from schemas.ingestion import FolderSource, SyntheticSource

DRAWN = SyntheticSource(identities=9, smallest=2, largest=3, seed=5)


@pytest.fixture
def faces(tmp_path: Path, write_shard: Callable[..., Path]) -> Faces:
    rows = [(person, f"{person}/{sample}", draw_jpeg(5, person, sample)) for person in range(3) for sample in range(2)]
    return Faces([write_shard(tmp_path / "shard", rows, 4)])


def identities(sources: list[int]) -> pa.Table:
    return pa.table({"source": sources, "label": [f"person-{2 * number:06d}" for number in range(len(sources))]})


def test_identities_of_a_drawn_source_get_photographs_that_the_source_does_not_have(faces: Faces) -> None:
    chosen = choose_enrolled([FolderSource(path="x"), DRAWN], identities([0, 1, 1]), faces, most=5, seed=0)
    assert chosen.origin == "new"
    assert sorted(np.unique(chosen.identity_N)) == [1, 2], "the first is of the folder, which has no new images"
    assert np.bincount(chosen.identity_N).tolist() in ([0, 3, 2], [0, 2, 3])
    known = {draw_jpeg(5, person, sample) for person in range(9) for sample in range(DRAWN.largest)}
    images = chosen.images.load(chosen.rows_N)
    assert images.shape == (5, 112, 112, 3)
    assert not {image.tobytes() for image in images} & {decode(content).tobytes() for content in known}
    assert len({image.tobytes() for image in images}) == 5
    first = draw_jpeg(5, 2 * int(chosen.identity_N[0]), DRAWN.largest)
    assert np.array_equal(images[0], decode(first)), "the person is the one of the label"


def test_without_a_drawn_source_the_images_of_the_training_are_taken(faces: Faces) -> None:
    chosen = choose_enrolled([FolderSource(path="x")], identities([0, 0, 0]), faces, most=4, seed=0)
    assert chosen.origin == "training"
    assert np.array_equal(chosen.identity_N, faces.labels_N[chosen.rows_N])


def test_unknown_identities_are_those_of_the_faces_given(faces: Faces) -> None:
    chosen = choose_unknown(faces, most=100, seed=0)
    assert np.array_equal(chosen.rows_N, np.arange(6))
    assert np.array_equal(chosen.identity_N, faces.labels_N)


def test_all_identities_has_a_first_turn_before_anybody_has_a_second() -> None:
    labels = np.repeat(np.arange(20), np.arange(1, 21))
    rows = take_turns(labels, 30, np.random.default_rng(0))
    counts = np.bincount(labels[rows])
    assert len(rows) == 30
    assert counts.min() == 1
    assert counts.max() == 2
    assert len(np.unique(rows)) == 30
