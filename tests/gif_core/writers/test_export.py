import pickle
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gif_core.images import Faces
from gif_core.ingestion.shards import FaceBatch, ShardFile
from gif_core.protocols import draw_pairs, pair_rows
from gif_core.writers import FORMATS, ExportInfo, Face, export_faces, group_rows
from gif_core.writers.export import OutputExistsError

IDENTITIES = [2, 0, 1, 0, 2, 2, 1, 0]
LABELS = ["ann", "bob", "cy"]


def image(row: int) -> bytes:
    return b"\xff\xd8\xff" + f"image {row}".encode()


@pytest.fixture
def faces(tmp_path: Path) -> Faces:
    """Eight faces of three identities, not grouped."""
    shards = [FaceBatch(), FaceBatch()]
    for row, identity_id in enumerate(IDENTITIES):
        shards[row // 5].add(identity_id, [str(row)], [image(row)])
    for number, shard in enumerate(shards):
        file = ShardFile(tmp_path / f"identities-{number}.arrow")
        file.write(shard)
        file.finish()
    return Faces(sorted(tmp_path.glob("*.arrow")))


def export(faces: Faces, name: str, out: Path, rows: np.ndarray | None = None) -> list[int]:
    rows = group_rows(faces.labels_N) if rows is None else rows
    return list(export_faces(faces, LABELS, rows, FORMATS[name], out))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_are_grouped_by_identity_and_keep_their_order(faces: Faces) -> None:
    assert group_rows(faces.labels_N).tolist() == [1, 3, 7, 2, 6, 0, 4, 5]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("recordio", ["property", "train.idx", "train.rec"]),
        ("folder", LABELS),
        ("webdataset", ["faces-000000.tar"]),
        ("bin", ["pairs.bin"]),
    ],
)
def test_every_format_counts_the_faces_and_appears_as_a_whole(
    faces: Faces, tmp_path: Path, name: str, files: list[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert export(faces, name, out) == list(range(1, 9))
    assert names(out) == files
    assert names(out.parent) == ["out"]


def test_the_images_bytes_are_untouched(faces: Faces, tmp_path: Path) -> None:
    export(faces, "folder", tmp_path / "out")
    assert [path.read_bytes() for path in sorted((tmp_path / "out" / "ann").iterdir())] == [image(r) for r in (1, 3, 7)]


def test_a_pair_file_is_what_pickle_reads_as_images_and_truths(faces: Faces, tmp_path: Path) -> None:
    pairs = draw_pairs(faces.labels_N, pairs=4, seed=0, folds=2)
    export(faces, "bin", tmp_path / "out", pair_rows(pairs))
    images, same = pickle.loads((tmp_path / "out" / "pairs.bin").read_bytes())
    assert same == pairs.same.tolist()
    assert {type(truth) for truth in same} == {bool}
    assert images[0::2] == [image(row) for row in pairs.left.tolist()]
    assert images[1::2] == [image(row) for row in pairs.right.tolist()]


def test_an_odd_number_of_faces_is_no_pair_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 faces cannot form pairs"):
        list(FORMATS["bin"]([], ExportInfo(LABELS, 3), tmp_path))


def test_an_empty_folder_is_filled(faces: Faces, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export(faces, "bin", tmp_path / "out")
    assert names(tmp_path / "out") == ["pairs.bin"]


def test_what_is_there_is_never_written_over(faces: Faces, tmp_path: Path) -> None:
    kept = tmp_path / "out" / "precious.txt"
    kept.parent.mkdir()
    kept.write_text("kept")
    for out in (kept.parent, kept):
        with pytest.raises(OutputExistsError, match="exists and is not an empty folder"):
            export(faces, "folder", out)
    assert kept.read_text() == "kept"
    assert names(kept.parent) == ["precious.txt"]


def test_what_appears_meanwhile_is_not_written_over_either(faces: Faces, tmp_path: Path) -> None:
    out = tmp_path / "to" / "out"
    steps = export_faces(faces, LABELS, group_rows(faces.labels_N), FORMATS["folder"], out)
    next(steps)
    out.mkdir()
    (out / "other.txt").write_text("of another")
    with pytest.raises(OSError, match="not empty"):
        list(steps)
    assert names(out.parent) == ["out"]
    assert names(out) == ["other.txt"]


@pytest.mark.parametrize("name", FORMATS)
def test_who_stops_halfway_leaves_nothing_behind(faces: Faces, tmp_path: Path, name: str) -> None:
    steps = export_faces(faces, LABELS, group_rows(faces.labels_N), FORMATS[name], tmp_path / "to" / "out")
    next(steps)
    assert len(names(tmp_path / "to")) == 1
    steps.close()
    assert names(tmp_path / "to") == []


def test_an_error_leaves_nothing_behind(faces: Faces, tmp_path: Path) -> None:
    def fail(faces: Iterable[Face], info: ExportInfo, folder: Path) -> Iterator[int]:
        (folder / "half").write_text("half")
        yield 1
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        list(export_faces(faces, LABELS, np.arange(8), fail, tmp_path / "to" / "out"))
    assert names(tmp_path / "to") == []


@pytest.mark.parametrize("name", FORMATS)
def test_memory_does_not_grow_with_the_number_of_faces(tmp_path: Path, name: str) -> None:
    size, few, many = 20_000, 100, 1000

    def face(i: int, number: int) -> Face:
        return Face(i * 20 // number, b"\xff\xd8\xff" + i.to_bytes(4) + bytes(size))

    def peak(number: int) -> int:
        folder = tmp_path / str(number)
        folder.mkdir()
        tracemalloc.start()
        for _ in FORMATS[name]((face(i, number) for i in range(number)), info(number), folder):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    def info(number: int) -> ExportInfo:
        return ExportInfo([f"person {i}" for i in range(20)], number)

    assert peak(20) > 0
    grown = peak(many) - peak(few)
    assert grown < 0.02 * size * (many - few), "threads of other tests allocate a little meanwhile"
