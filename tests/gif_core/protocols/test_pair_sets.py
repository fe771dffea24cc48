"""Pairs from third-party files, and what errors say of those that are not as they must be."""

import io
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.protocols import UndefinedMetricsError, check_pairs
from gif_core.protocols.sets import PairSet, open_pairs
from gif_core.protocols.sets.bin import PairFileError
from gif_core.protocols.sets.describe import describe_pairs
from gif_core.protocols.sets.files import EvaluationFileError
from gif_core.writers import ExportInfo, Face, write_pair_file
from schemas.evaluation import LfwSet, PairFileSet, PairTableSet

REAL_FILES = sorted((Path(__file__).parents[4] / "shared/data/recordio/faceid_kz").glob("*.bin"))


def png(value: int, side: int = 112) -> bytes:
    """An image of one grey, which survives any decoder."""
    _, encoded = cv2.imencode(".png", np.full((side, side, 3), value, np.uint8))
    return bytes(encoded.tobytes())


def greys(pairs: PairSet) -> list[tuple[int, int, bool]]:
    """The pairs by the greys of their images."""
    sides = [pairs.images.load(rows)[:, 0, 0, 0].tolist() for rows in (pairs.pairs.left, pairs.pairs.right)]
    return list(zip(*sides, pairs.pairs.same.tolist(), strict=True))


def write_bin(folder: Path, greys: list[int], identities: list[int]) -> Path:
    faces = [Face(identity, png(grey)) for identity, grey in zip(identities, greys, strict=True)]
    list(write_pair_file(faces, ExportInfo([""] * 9, len(faces)), folder))
    return folder / "pairs.bin"


def test_a_bin_gives_its_pairs_and_each_image_once(tmp_path: Path) -> None:
    path = write_bin(tmp_path, [10, 20, 30, 10], [1, 1, 2, 1])
    found = open_pairs(PairFileSet(path=str(path)))
    assert greys(found) == [(10, 20, True), (30, 10, False)]
    assert len(found.images.contents) == 3  # type: ignore[attr-defined]


def test_a_file_that_is_no_bin_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(PairFileError, match=r"x\.bin is not a file of pairs: it refers to os\.system"):
        open_pairs(PairFileSet(path=str(tmp_path / "x.bin")))
    with pytest.raises(FileNotFoundError, match=r"there is no file .*y\.bin"):
        open_pairs(PairFileSet(path=str(tmp_path / "y.bin")))


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    list(write_pair_file([Face(1, png(1)), Face(1, b"no image")], ExportInfo([""], 2), tmp_path))
    with pytest.raises(EvaluationFileError, match=r"pairs\.bin, image 1: not a JPEG"):
        greys(open_pairs(PairFileSet(path=str(tmp_path / "pairs.bin"))))


@pytest.mark.skipif(not REAL_FILES, reason="the real files are not there")
@pytest.mark.parametrize("path", REAL_FILES, ids=lambda path: path.name)
def test_a_real_file_of_same_pairs_only_has_no_far(path: Path) -> None:
    pairs = open_pairs(PairFileSet(path=str(path)))
    assert len(pairs.pairs) == 749
    with pytest.raises(UndefinedMetricsError, match="all 749 pairs are same pairs: FAR is undefined"):
        check_pairs(pairs.pairs.same, 10)


def write_lfw(folder: Path, text: str, names: dict[str, int] | None = None) -> LfwSet:
    given = {"Ann_Lee/Ann_Lee_0001.jpg": 10, "Ann_Lee/Ann_Lee_0004.png": 40, "Bo/Bo_0012.jpg": 120}
    for name, grey in (names or given).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(png(grey))
    (folder / "pairs.txt").write_text(text)
    return LfwSet(folder=str(folder), pairs=str(folder / "pairs.txt"))


def test_lfws_pairs_are_read_in_their_order(tmp_path: Path) -> None:
    given = write_lfw(tmp_path, "1\t1\nAnn_Lee\t1\t4\nAnn_Lee\t4\tBo\t12\n")
    assert greys(open_pairs(given)) == [(10, 40, True), (40, 120, False)]


def test_the_first_line_may_be_missing_and_blanks_may_separate(tmp_path: Path) -> None:
    assert greys(open_pairs(write_lfw(tmp_path, "Ann_Lee 1 Bo 12\r\n\r\n"))) == [(10, 120, False)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\t1\nAnn_Lee\t1\t2\n", r"pairs\.txt, line 2, column 3: there is no image Ann_Lee/Ann_Lee_0002\.jpg"),
        ("1\t1\nAnn_Lee\t1\tBob\t12\n", r"pairs\.txt, line 2, column 4: there is no image Bob/Bob_0012"),
        ("1\t1\nAnn_Lee\t1\tx\n", r"line 2, column 3: 'x' is not a number"),
        ("1\t1\nAnn_Lee\t1\n", r"line 2: a pair has three columns .* not 2"),
        ("10\t300\nAnn_Lee\t1\t4\n", r"line 1: announces 10 × \(300 \+ 300\) pairs, but there are 1"),
        ("10\t300\n", r"names no pair"),
        ("", r"names no pair"),
    ],
)
def test_what_is_wrong_with_pairs_txt_is_reported_with_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(EvaluationFileError, match=words):
        open_pairs(write_lfw(tmp_path, text))


def test_lfw_images_are_aligned_by_landmarks(tmp_path: Path) -> None:
    image = np.zeros((250, 250, 3), np.uint8)
    cv2.circle(image, (100, 110), 4, (255, 255, 255), -1)
    given = write_lfw(tmp_path, "Ann_Lee 1 1\n")
    cv2.imwrite(str(tmp_path / "Ann_Lee/Ann_Lee_0001.jpg"), image)
    (tmp_path / "points.txt").write_text("Ann_Lee/Ann_Lee_0001.jpg 100 110 150 110 125 140 105 165 145 165\n")
    found = open_pairs(given.model_copy(update={"landmarks": str(tmp_path / "points.txt")}))
    (aligned,) = found.images.load(np.array([0]))
    assert aligned[49:55, 36:41].mean() > 150
    (tmp_path / "points.txt").write_text("Other/Other_0001.jpg 100 110 150 110 125 140 105 165 145 165\n")
    found = open_pairs(given.model_copy(update={"landmarks": str(tmp_path / "points.txt")}))
    with pytest.raises(EvaluationFileError, match=r"Ann_Lee_0001\.jpg is not in the file of landmarks"):
        found.images.load(np.array([0]))


def write_table(path: Path, **columns: object) -> PairTableSet:
    pq.write_table(pa.table(columns), path)
    return PairTableSet(path=str(path))


def test_a_table_of_images_gives_its_pairs(tmp_path: Path) -> None:
    as_struct = [{"bytes": png(30), "path": None}, {"bytes": png(40), "path": "x.png"}]
    given = write_table(tmp_path / "p.parquet", left=[png(10), png(20)], right=as_struct, same=[True, False])
    assert greys(open_pairs(given)) == [(10, 30, True), (20, 40, False)]


def test_a_table_of_row_numbers_takes_images_from_another(tmp_path: Path) -> None:
    write_table(tmp_path / "images.parquet", image=[png(10), png(20), png(30)])
    given = write_table(tmp_path / "p.parquet", left=[2, 0], right=[1, 1], same=[True, False])
    given = given.model_copy(update={"images": str(tmp_path / "images.parquet")})
    assert greys(open_pairs(given)) == [(30, 20, True), (10, 20, False)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"left": [b"a"], "same": [True]}, "has no column 'right'; its columns are left, same"),
        ({"left": [b"a"], "right": [b"b"], "same": [1]}, "column 'same' must hold true and false, not int64"),
        ({"left": [b"a", None], "right": [b"b"] * 2, "same": [True] * 2}, "row 1, column 'left': the value is missing"),
        ({"left": [b"a", b""], "right": [b"b"] * 2, "same": [True] * 2}, "column 'left', row 1: the image is empty"),
        ({"left": ["a"], "right": [b"b"], "same": [True]}, "column 'left': images are bytes, .* not string"),
        ({"left": [0], "right": [1], "same": [True]}, "column 'left': images are bytes, .* not int64"),
    ],
)
def test_what_is_wrong_with_a_table_is_reported_with_its_column(
    tmp_path: Path, columns: dict[str, object], words: str
) -> None:
    with pytest.raises(EvaluationFileError, match=rf"p\.parquet.*{words}"):
        open_pairs(write_table(tmp_path / "p.parquet", **columns))


def test_a_table_of_pairs_that_unfolds_to_a_gigabyte_is_refused(tmp_path: Path) -> None:
    pairs = pa.table({"left": [bytes(2**20)] * 200, "right": [b"1"] * 200, "same": [True] * 200})
    pq.write_table(pairs, tmp_path / "p.parquet", compression="zstd", dictionary_pagesize_limit=2**30)
    assert (tmp_path / "p.parquet").stat().st_size < 2**12
    with pytest.raises(EvaluationFileError, match=r"p\.parquet is not a readable .* it unfolds to more than"):
        open_pairs(PairTableSet(path=str(tmp_path / "p.parquet")))


def test_row_numbers_beyond_the_images_are_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "images.parquet", image=[png(10)])
    given = write_table(tmp_path / "p.parquet", left=[0], right=[1], same=[True])
    with pytest.raises(EvaluationFileError, match="column 'right', row 0: there is no image 1 among 1"):
        open_pairs(given.model_copy(update={"images": str(tmp_path / "images.parquet")}))


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_bytes(b"PAR1 or so")
    with pytest.raises(EvaluationFileError, match="is not a readable Parquet file"):
        open_pairs(PairTableSet(path=str(tmp_path / "p.parquet")))


def test_what_a_set_holds_does_not_depend_on_where_it_is(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        write_lfw(tmp_path / place, "Ann_Lee 1 4\n")
        write_bin(tmp_path / place, [1, 2], [1, 1])
    holds = [
        [
            describe_pairs(LfwSet(folder=str(folder), pairs=str(folder / "pairs.txt"))),
            describe_pairs(PairFileSet(path=str(folder / "pairs.bin"))),
        ]
        for folder in (tmp_path / "a", tmp_path / "b")
    ]
    assert holds[0] == holds[1]
    write_bin(tmp_path / "b", [1, 3], [1, 1])
    assert describe_pairs(PairFileSet(path=str(tmp_path / "b/pairs.bin"))) != holds[0][1]


def test_files_at_any_fsspec_address_are_read() -> None:
    import fsspec

    buffer = io.BytesIO()
    pq.write_table(pa.table({"left": [png(1)], "right": [png(2)], "same": [True]}), buffer)
    fsspec.filesystem("memory").pipe_file("/pairs/p.parquet", buffer.getvalue())
    assert greys(open_pairs(PairTableSet(path="memory://pairs/p.parquet"))) == [(1, 2, True)]
