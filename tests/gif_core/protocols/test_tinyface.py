"""TinyFace: the reader on drawn files of its layout, and the ranks against a full sort."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.protocols import search_cmc, search_images
from gif_core.protocols.sets import describe_tinyface, read_tinyface, tinyface_files, tinyface_images
from gif_core.protocols.sets.files import EvaluationFileError
from tests.tinyface_files import write_tinyface


def test_the_layout_of_the_published_set_is_read(tmp_path: Path) -> None:
    root = write_tinyface(tmp_path, identities=3, distractors=4)
    (root / "Testing_Set/Gallery_Match/Thumbs.db").write_bytes(b"")
    (root / "Testing_Set/probe_img_ID_pairs.mat").write_bytes(b"not read")
    found = read_tinyface(tinyface_files(str(root)))
    assert (found.gallery, found.distractors, found.probes) == (10, 4, 6)
    assert found.label_N.tolist() == [1, 1, 2, 2, 3, 3, -1, -1, -1, -1, 1, 1, 2, 2, 3, 3]
    assert [name for name in found.images if "/2_" in name and "Distractor" not in name] == [
        f"{part}/2_{number}.jpg" for part, numbers in (("Gallery_Match", "12"), ("Probe", "34")) for number in numbers
    ]
    inside = read_tinyface(tinyface_files(str(root / "Testing_Set")))
    assert inside.images == found.images, "the folder may be that of the three folders, too"


def test_small_images_are_resized_in_the_order_of_the_labels(tmp_path: Path) -> None:
    files = tinyface_files(str(write_tinyface(tmp_path, identities=2, distractors=1)))
    last = read_tinyface(files).images[-1]
    images = tinyface_images(files).load(np.array([8, 0]))
    assert images.shape == (2, 112, 112, 3)
    pixels = cv2.cvtColor(cv2.imread(str(tmp_path / "tinyface/Testing_Set" / last)), cv2.COLOR_BGR2RGB)
    assert pixels.shape == (20, 20, 3)
    assert abs(images[0].mean() - pixels.mean()) < 2
    assert not np.array_equal(images[0], images[1])


def test_distractors_in_folders_of_their_own_count(tmp_path: Path) -> None:
    root = write_tinyface(tmp_path, identities=2, distractors=2) / "Testing_Set/Gallery_Distractor"
    (root / "scene").mkdir()
    for path in list(root.glob("*.jpg")):
        path.rename(root / "scene" / path.name)
    assert read_tinyface(tinyface_files(str(tmp_path / "tinyface"))).distractors == 2


def test_the_key_follows_names_and_sizes(tmp_path: Path) -> None:
    root = write_tinyface(tmp_path, identities=2, distractors=1)
    before = describe_tinyface(tinyface_files(str(root)))
    (root / "Testing_Set/Probe/1_3.jpg").rename(root / "Testing_Set/Probe/2_9.jpg")
    assert describe_tinyface(tinyface_files(str(root))) != before


def test_names_without_a_label_and_probes_without_a_mate_are_named(tmp_path: Path) -> None:
    root = write_tinyface(tmp_path, identities=2, distractors=1)
    (root / "Testing_Set/Probe/7_1.jpg").write_bytes((root / "Testing_Set/Probe/1_3.jpg").read_bytes())
    with pytest.raises(EvaluationFileError, match=r"Probe/7_1\.jpg: identity 7 has no image in Gallery_Match"):
        read_tinyface(tinyface_files(str(root)))
    (root / "Testing_Set/Gallery_Match/anna.jpg").write_bytes(b"")
    with pytest.raises(EvaluationFileError, match=r"anna\.jpg: names begin with a number and an underscore"):
        read_tinyface(tinyface_files(str(root)))
    with pytest.raises(FileNotFoundError, match=r"no folder .*Gallery_Match"):
        read_tinyface(tinyface_files(str(tmp_path / "nowhere")))


def test_ranks_are_those_of_a_full_sort() -> None:
    rng = np.random.default_rng(3)
    label_G, label_Q = np.append(rng.integers(0, 20, 60), [-1] * 90), rng.integers(0, 20, 300)
    label_Q = label_Q[np.isin(label_Q, label_G)]
    centre = rng.normal(size=(20, 8))
    gallery = np.concatenate([centre[label_G[:60]] + rng.normal(size=(60, 8)), rng.normal(size=(90, 8))])
    probes = centre[label_Q] + rng.normal(size=(len(label_Q), 8))
    gallery, probes = (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in (gallery, probes)
    )
    order_QG = np.argsort(-(probes @ gallery.T), axis=1)
    hit_QG = label_G[order_QG] == label_Q[:, None]
    found = search_images(gallery, label_G, probes, label_Q)
    cmc = search_cmc(found)
    for rank in (1, 5, 20):
        assert cmc[rank - 1] == pytest.approx(hit_QG[:, :rank].any(axis=1).mean(), abs=1e-12)
    assert 0 < cmc[0] < cmc[4] < cmc[19] <= 1


def test_a_tie_is_resolved_against_the_probe() -> None:
    rows = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    found = search_images(rows, np.array([1, -1, 2]), rows[:1], np.array([1]))
    assert found.rank_Q.tolist() == [1]
