"""Trees in the form of IJB: what is read, and what errors say of files that are not as they must be."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from gif_core.protocols.sets import EvaluationFiles, IjbImages, IjbName, describe_ijb, read_ijb, text_columns
from gif_core.protocols.sets.files import EvaluationFileError
from schemas.errors import GifError

POINTS = "30.1 40.2 70.3 40.4 50.5 60.6 35.7 80.8 65.9 80.1"
TREE = {
    "face_tid_mid.txt": "1.jpg 7 100\n2.jpg 7 100\n3.jpg 3 101\n4.jpg 12 102\n",
    "name_5pts_score.txt": "".join(f"{n}.jpg {POINTS} 0.{n}5\n" for n in (1, 2, 3, 4)),
    "template_pair_label.txt": "7 3 1\n7 12 0\n3 12 0\n",
    "1N_gallery_G1.csv": "TEMPLATE_ID,SUBJECT_ID,FILE\n7,70,a.jpg\n7,70,b.jpg\n",
    "1N_gallery_G2.csv": "TEMPLATE_ID,SUBJECT_ID,FILE\n12,71,c.jpg\n",
    "1N_probe_mixed.csv": "TEMPLATE_ID,SUBJECT_ID\n3,70\n",
}


def write_tree(folder: Path, name: str = "ijbc", **changed: str | None) -> EvaluationFiles:
    for part in ("meta", "loose_crop"):
        (folder / part).mkdir(exist_ok=True)
    for file, text in {**TREE, **{key.replace("__", "."): value for key, value in changed.items()}}.items():
        if text is not None:
            (folder / "meta" / f"{name}_{file}").write_text(text)
    return EvaluationFiles(str(folder))


def test_a_tree_is_read(tmp_path: Path) -> None:
    meta = read_ijb(write_tree(tmp_path), "IJB-C")
    assert meta.faces.images == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]
    assert meta.faces.template_ids_T.tolist() == [3, 7, 12]
    assert meta.faces.template_N.tolist() == [1, 1, 0, 2]
    assert meta.faces.media_N.tolist() == [100, 100, 101, 102]
    assert meta.faces.detector_N.tolist() == [0.15, 0.25, 0.35, 0.45]
    assert meta.faces.points_N52[2].tolist() == [[30.1, 40.2], [70.3, 40.4], [50.5, 60.6], [35.7, 80.8], [65.9, 80.1]]
    assert (meta.left_P.tolist(), meta.right_P.tolist()) == ([1, 1, 0], [0, 2, 2])
    assert meta.same_P.tolist() == [True, False, False]
    assert {name: each.template_G.tolist() for name, each in meta.galleries.items()} == {"G1": [1], "G2": [2]}
    assert meta.probes is not None
    assert (meta.probes.template_G.tolist(), meta.probes.subject_G.tolist()) == ([0], [70])


def test_the_points_may_be_in_another_order(tmp_path: Path) -> None:
    lines = TREE["name_5pts_score.txt"].splitlines(keepends=True)
    meta = read_ijb(write_tree(tmp_path, name_5pts_score__txt="".join(lines[::-1])), "IJB-C")
    assert meta.faces.detector_N.tolist() == [0.15, 0.25, 0.35, 0.45]


def test_ijb_b_has_files_of_its_own_name(tmp_path: Path) -> None:
    files = write_tree(tmp_path, "ijbb", **{"1N_gallery_S1__csv": TREE["1N_gallery_G1.csv"]})
    (tmp_path / "meta/ijbb_1N_gallery_S2.csv").write_text(TREE["1N_gallery_G2.csv"])
    assert list(read_ijb(files, "IJB-B").galleries) == ["S1", "S2"]
    with pytest.raises(FileNotFoundError, match=r"ijbc_face_tid_mid\.txt"):
        read_ijb(files, "IJB-C")


def test_repeated_blanks_windows_line_ends_and_empty_lines_are_forgiven(tmp_path: Path) -> None:
    changed = {
        "face_tid_mid__txt": "1.jpg  7 100 \r\n2.jpg 7 100\r\n\r\n3.jpg 3\t101\r\n4.jpg 12 102",
        "template_pair_label__txt": "7 3 1\r\n\r\n7 12 0\r\n3 12 0",
    }
    meta = read_ijb(write_tree(tmp_path, **changed), "IJB-C")
    assert meta.faces.template_N.tolist() == [1, 1, 0, 2]
    assert meta.same_P.tolist() == [True, False, False]


def test_a_set_without_galleries_is_for_verification_alone(tmp_path: Path) -> None:
    changed = dict.fromkeys(("1N_gallery_G1__csv", "1N_gallery_G2__csv", "1N_probe_mixed__csv"))
    meta = read_ijb(write_tree(tmp_path, **changed), "IJB-C")
    assert (meta.galleries, meta.probes) == ({}, None)


def one_point(image: int, points: str) -> str:
    """The file of points with others for one image."""
    lines = TREE["name_5pts_score.txt"].splitlines(keepends=True)
    return "".join([*lines[: image - 1], f"{image}.jpg {points}0.9\n", *lines[image:]])


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (
            "face_tid_mid.txt",
            "1.jpg 7 100\n2.jpg x 100\n",
            r"line 2, column 2 \(template\): expected .*, got 'x'",
        ),
        ("face_tid_mid.txt", "1.jpg 7 100\n2.jpg 7\n", r"line 2: column 3 \(media\) is missing"),
        (
            "face_tid_mid.txt",
            "1.jpg 7 100\n\n2.jpg 7 100 5\n",
            r"line 3: expected 3 columns .*, got 4",
        ),
        ("face_tid_mid.txt", "1.jpg 7.5 100\n", r"line 1, column 2 \(template\)"),
        ("face_tid_mid.txt", "1.jpg 99999999999999999999 1\n", r"line 1, column 2 \(template\)"),
        ("face_tid_mid.txt", "1.jpg 1_0 1\n", r"line 1, column 2 \(template\): expected a whole number, got '1_0'"),
        (
            "face_tid_mid.txt",
            "1.jpg \u0667 1\n",
            r"line 1, column 2 \(template\): expected .*, got '\u0667'",
        ),
        ("face_tid_mid.txt", "\n", r"names no image"),
        ("face_tid_mid.txt", "1.jpg 7 1\n\n5.jpg 7 1\n", r"line 3, column 1 \(image\): 5.jpg has no line in .*5pts"),
        ("name_5pts_score.txt", f"1.jpg {POINTS}\n", r"line 1: column 12 \(detector score\) is missing"),
        (
            "name_5pts_score.txt",
            f"1.jpg {POINTS} nan\n",
            r"line 1, column 12 \(detector score\): expected a finite",
        ),
        ("name_5pts_score.txt", f"1.jpg {POINTS.replace('60.6', 'o')} 1\n", r"line 1, column 7 \(y3\).* got 'o'"),
        ("name_5pts_score.txt", f"1.jpg {POINTS} 1_0.5\n", r"line 1, column 12 \(detector score\).* got '1_0\.5'"),
        ("name_5pts_score.txt", one_point(3, "5 5 " * 5), r"line 3, column 2 \(x1\): no face can be aligned by these"),
        ("name_5pts_score.txt", one_point(4, "1e300 -1e300 " * 5), r"line 4, column 2 \(x1\): no face can be aligned"),
        ("name_5pts_score.txt", one_point(2, "1e300 1 -1e300 1 3 4 5 6 7 8 "), r"line 2, column 2 \(x1\): no face can"),
        (
            "name_5pts_score.txt",
            f"1.jpg {POINTS} 1\n1.jpg {POINTS} 1\n",
            r"line 2, column 1 \(image\): 1.jpg is .*twice",
        ),
        ("template_pair_label.txt", "7 3 1\n7 3 2\n", r"line 2, column 3 \(same\): expected 0 or 1, got '2'"),
        ("template_pair_label.txt", "7 3 1\n8 3 1\n", r"line 2, column 1 \(first template\): template 8 has no image"),
        ("template_pair_label.txt", "7 3 1\n\n\n7 4 1\n", r"line 4, column 2 \(second template\): template 4 has"),
        ("template_pair_label.txt", "7 3 1\n7,3,1\n", r"line 2: column 2 \(second template\) is missing"),
        ("1N_gallery_G1.csv", "T,S\n7,70\n9,71\n", r"line 3, column 1 \(template\): template 9 has no image"),
        ("1N_gallery_G1.csv", "T,S\n7\n", r"line 2: column 2 \(subject\) is missing"),
        ("1N_gallery_G1.csv", "T,S\n7,a\n", r"line 2, column 2 \(subject\): expected a whole number"),
        (
            "1N_gallery_G1.csv",
            "T,S\n7,70\n7,71\n",
            r"line 3, column 2 \(subject\): an earlier line gives",
        ),
        ("1N_gallery_G1.csv", "T,S\n7,70\n3,70\n", r"line 3, column 2 \(subject\): subject 70 is already enrolled"),
        (
            "1N_gallery_G2.csv",
            "T,S\n12,71\n3,70\n",
            r"line 3, column 2 \(subject\): subject 70 .* in gallery G1",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_reported_with_file_line_and_column(
    tmp_path: Path, file: str, text: str, words: str
) -> None:
    files = write_tree(tmp_path, **{file.replace(".", "__"): text})
    with pytest.raises(EvaluationFileError, match=f"meta/ijbc_{file}.*{words}") as caught:
        read_ijb(files, "IJB-C")
    assert isinstance(caught.value, GifError)


@pytest.mark.parametrize("block", [1, 7, 20])
def test_files_of_many_blocks_are_read_and_their_faults_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text_columns, "BLOCK", block)
    changed = TREE["template_pair_label.txt"].replace("\n", "\n\n") + "7  12 1"
    meta = read_ijb(write_tree(tmp_path, template_pair_label__txt=changed), "IJB-C")
    assert meta.same_P.tolist() == [True, False, False, True]
    assert meta.faces.detector_N.tolist() == [0.15, 0.25, 0.35, 0.45]
    assert meta.galleries["G1"].subject_G.tolist() == [70]
    with pytest.raises(EvaluationFileError, match=r"line 8, column 3 \(same\)"):
        read_ijb(write_tree(tmp_path, template_pair_label__txt=f"{changed}\n7 12 no"), "IJB-C")
    with pytest.raises(EvaluationFileError, match=r"line 3, column 2 \(subject\)"):
        read_ijb(write_tree(tmp_path, **{"1N_gallery_G1__csv": "a,b\n7,1\n7,2"}), "IJB-C")


@pytest.mark.parametrize("file", ["1N_gallery_G1.csv", "1N_gallery_G2.csv", "1N_probe_mixed.csv"])
def test_galleries_and_probes_without_a_line_are_refused(tmp_path: Path, file: str) -> None:
    files = write_tree(tmp_path, **{file.replace(".", "__"): "TEMPLATE_ID,SUBJECT_ID\n"})
    with pytest.raises(EvaluationFileError, match=rf"meta/ijbc_{file} names no template"):
        read_ijb(files, "IJB-C")


def test_images_that_are_not_listed_are_reported_with_file_and_line(tmp_path: Path) -> None:
    files = write_tree(tmp_path)
    for number in (1, 2, 4):
        (tmp_path / f"loose_crop/{number}.jpg").touch()
    with pytest.raises(EvaluationFileError, match=r"line 3, column 1 \(image\): there is no image loose_crop/3\.jpg"):
        read_ijb(files, "IJB-C", files.listing("loose_crop"))
    (tmp_path / "loose_crop/3.jpg").touch()
    assert len(read_ijb(files, "IJB-C", files.listing("loose_crop")).faces) == 4


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    files = write_tree(tmp_path)
    (tmp_path / "meta/ijbc_1N_gallery_G2.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*ijbc_1N_gallery_G2\.csv"):
        read_ijb(files, "IJB-C")
    (tmp_path / "meta/ijbc_template_pair_label.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"template_pair_label\.txt"):
        read_ijb(files, "IJB-C")


def test_images_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    files = write_tree(tmp_path)
    (tmp_path / "loose_crop/2.jpg").write_bytes(b"no image")
    images = IjbImages(files, read_ijb(files, "IJB-C").faces)
    with pytest.raises(FileNotFoundError, match=r"loose_crop/1\.jpg"):
        images.load(np.array([0]))
    with pytest.raises(EvaluationFileError, match=r"loose_crop/2\.jpg: not a JPEG"):
        images.load(np.array([1]))


def test_faces_are_aligned_by_their_points(tmp_path: Path) -> None:
    """A dot at each landmark comes out where the field's template has it."""
    files = write_tree(tmp_path)
    points = read_ijb(files, "IJB-C").faces.points_N52[0]
    image = np.zeros((120, 130, 3), np.uint8)
    for x, y in points:
        cv2.circle(image, (round(x), round(y)), 2, (0, 0, 255), -1)
    cv2.imwrite(str(tmp_path / "loose_crop/1.png"), image)
    (tmp_path / "loose_crop/1.png").rename(tmp_path / "loose_crop/1.jpg")
    (aligned,) = IjbImages(files, read_ijb(files, "IJB-C").faces).load(np.array([0]))
    eye = aligned[47:57, 33:44]
    assert aligned.shape == (112, 112, 3)
    assert eye[..., 0].max() > 200, "red, so channels are RGB"
    assert aligned[..., 2].max() == 0


@pytest.mark.parametrize("name", ["IJB-C"])
def test_what_a_tree_holds_changes_with_its_texts_and_its_images_and_not_with_its_place(
    tmp_path: Path, name: IjbName
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (write_tree(tmp_path / place) for place in "ab")
    assert describe_ijb(first, name) == describe_ijb(second, name)
    (tmp_path / "b/loose_crop/1.jpg").write_bytes(b"image")
    assert describe_ijb(first, name)["meta"] == describe_ijb(second, name)["meta"]
    assert describe_ijb(first, name)["images"] != describe_ijb(second, name)["images"]
    write_tree(tmp_path / "a", template_pair_label__txt="7 3 0\n7 12 0\n3 12 0\n")
    assert describe_ijb(first, name)["meta"] != describe_ijb(second, name)["meta"]
