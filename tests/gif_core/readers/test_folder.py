import errno
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.images import SourceFile, align, read_landmarks
from gif_core.readers import FolderReader, open_reader
from gif_core.synthetic import draw_jpeg
from schemas.ingestion import FolderSource, RecordIOSource, Source, TableSource, WebDatasetSource

POINTS = "38.3 51.7 73.5 51.5 56.0 71.7 41.5 92.4 70.7 92.2"
Read = Callable[[Source], Any]
Upload = Callable[[Path], str]


def fill(root: Path, names: list[str]) -> Path:
    """Files whose contents are their names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def test_identities_and_images_come_in_the_order_of_their_names(read_source: Read, tmp_path: Path) -> None:
    names = ["b/2.jpg", "b/10.jpg", "a/z.png", "B/x.jpeg", "a/A.webp", "é/1.bmp", "a b/c d.JPG"]
    found = read_source(FolderSource(path=str(fill(tmp_path, names))))
    order = ["B/x.jpeg", "a/A.webp", "a/z.png", "a b/c d.JPG", "b/10.jpg", "b/2.jpg", "é/1.bmp"]
    assert [row.name for row in found.rows] == order
    assert [row.label for row in found.rows] == [name.partition("/")[0] for name in order]
    assert [row.image for row in found.rows] == [name.encode() for name in order]
    assert found.faults == []


def test_nested_and_hidden_files_and_other_files_than_images_are_skipped(read_source: Read, tmp_path: Path) -> None:
    names = ["a/1.jpg", "a/nested/2.jpg", "a/.hidden.jpg", "a/._1.jpg", ".thumbnails/3.jpg", "a/notes.txt", "top.jpg"]
    fill(tmp_path, [*names, "a/jpg", "a/4.jpg.part", "b/readme.md"])
    (tmp_path / "c").mkdir()
    (tmp_path / "a" / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    found = read_source(FolderSource(path=str(tmp_path)))
    assert [row.name for row in found.rows] == ["a/1.jpg"]
    assert open_reader(FolderSource(path=str(tmp_path))).listing.labels == ["a"]


def test_links_to_folders_and_images_are_followed(read_source: Read, tmp_path: Path) -> None:
    fill(tmp_path / "real", ["a/1.jpg"])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b").symlink_to(tmp_path / "real" / "a")
    (tmp_path / "data" / "b" / "2.jpg").symlink_to(tmp_path / "real" / "a" / "1.jpg")
    (tmp_path / "data" / "b" / "3.jpg").symlink_to(tmp_path / "nowhere.jpg")
    found = read_source(FolderSource(path=str(tmp_path / "data")))
    assert [row[:2] for row in found.rows] == [("b/1.jpg", "b"), ("b/2.jpg", "b")]


def test_records_are_read_in_any_order(tmp_path: Path) -> None:
    reader = open_reader(FolderSource(path=str(fill(tmp_path, ["a/1.jpg", "a/2.jpg", "b/1.jpg"]))))
    assert reader.in_any_order
    assert list(reader.read(np.array([2, 0, 2]))) == [b"b/1.jpg", b"a/1.jpg", b"b/1.jpg"]
    assert list(reader.read(np.array([], np.int64))) == []


def test_a_file_that_has_vanished_or_is_forbidden_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    reader = open_reader(FolderSource(path=str(fill(tmp_path, ["a/1.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg"]))))
    assert len(reader.listing.person_R) == 4
    (tmp_path / "a" / "1.jpg").unlink()
    shutil.rmtree(tmp_path / "b")
    contents = list(reader.read(np.arange(4)))
    assert [str(content) for content in (contents[0], contents[3])] == ["cannot be read: No such file or directory"] * 2
    assert contents[1:3] == [b"a/2.jpg", b"a/3.jpg"]


def test_files_larger_than_any_image_are_not_read(read_source: Read, tmp_path: Path) -> None:
    fill(tmp_path, ["a/1.jpg", "a/2.jpg"])
    os.truncate(tmp_path / "a" / "1.jpg", 2**26 + 1)
    found = read_source(FolderSource(path=str(tmp_path)))
    assert found.faces == [("a", "too large: a file of 67108865 bytes"), ("a", b"a/2.jpg")]


def test_names_that_are_not_utf_8_are_faults(read_source: Read, tmp_path: Path) -> None:
    fill(tmp_path, ["a/1.jpg"])
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/b\xe9")  # noqa: PTH102
    for name in (b"/a/\xff.jpg", b"/b\xe9/1.jpg"):
        Path(os.fsdecode(root + name)).write_bytes(b"x")
    found = read_source(FolderSource(path=str(tmp_path)))
    assert found.faces == [("a", b"a/1.jpg")]
    assert found.faults == [("a/\\udcff.jpg", "its name is not UTF-8"), ("b\\udce9/1.jpg", "its name is not UTF-8")]
    pa.array([fault.record for fault in found.faults])


def test_images_are_the_files_of_the_source(tmp_path: Path) -> None:
    source = FolderSource(path=str(fill(tmp_path / "data", ["a/1.jpg", "b/22.jpg"])))
    files = open_reader(source).files
    assert list(files) == [SourceFile("a/1.jpg", 7, ""), SourceFile("b/22.jpg", 8, "")]
    assert len(files) == 2
    (tmp_path / "points.txt").write_text(f"a/1.jpg {POINTS}\n")
    described = open_reader(FolderSource(path=source.path, landmarks=str(tmp_path / "points.txt"))).describe()
    assert described != open_reader(source).describe()
    (tmp_path / "points.txt").write_text(f"b/22.jpg {POINTS}\n")
    assert described != open_reader(FolderSource(path=source.path, landmarks=str(tmp_path / "points.txt"))).describe()


class TestLandmarks:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        for person in range(2):
            folder = tmp_path / "data" / f"p {person}"
            folder.mkdir(parents=True)
            for sample in range(2):
                (folder / f"{sample}.jpg").write_bytes(draw_jpeg(0, person, sample))
        return tmp_path / "data"

    @pytest.fixture
    def read(self, root: Path, tmp_path: Path, read_source: Read) -> Callable[[str], Any]:
        def read(text: str) -> Any:
            (tmp_path / "points.txt").write_text(text)
            return read_source(FolderSource(path=str(root), landmarks=str(tmp_path / "points.txt")))

        return read

    def test_images_are_aligned_by_their_points(self, read: Callable[[str], Any], root: Path) -> None:
        shifted = "28.3 51.7 63.5 51.5 46.0 71.7 31.5 92.4 60.7 92.2"
        lines = [f"p {person}/{sample}.jpg {shifted}" for person in range(2) for sample in range(2)]
        found = read("\n".join(lines))
        for name, _, content in found.rows:
            image = cv2.imdecode(np.frombuffer((root / name).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
            points = np.array(shifted.split(), np.float64).reshape(5, 2)
            aligned = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
            assert aligned.shape == (112, 112, 3)
            difference = np.abs(aligned.astype(int) - align(image, points)).mean()
            assert difference < 3
            assert np.abs(aligned.astype(int) - image).mean() > 5

    def test_an_image_without_points_is_refused(self, read: Callable[[str], Any]) -> None:
        found = read(f"p 0/0.jpg {POINTS}\n\np 1/1.jpg {POINTS} 0.99\n")
        refused = [row.name for row in found.rows if row.image == "no landmarks for this image"]
        assert refused == ["p 0/1.jpg", "p 1/0.jpg"]
        assert all(isinstance(row.image, bytes) for row in found.rows if row.name not in refused)

    @pytest.mark.parametrize(
        "points", ["5 5 " * 5, "nan " * 10, "inf " * 10, "1e999 " * 10, "1e300 -1e300 " * 5, "0 0 1e-9 0 " * 2 + "0 0"]
    )
    def test_points_of_no_use_are_refused(self, read: Callable[[str], Any], points: str) -> None:
        found = read("\n".join(f"p {person}/{sample}.jpg {points}" for person in range(2) for sample in range(2)))
        assert all(row.image.startswith("its landmarks cannot be used: ") for row in found.rows)

    def test_an_image_that_cannot_be_decoded_is_refused(self, read: Callable[[str], Any], root: Path) -> None:
        (root / "p 0" / "0.jpg").write_bytes(b"no image")
        (root / "p 0" / "1.jpg").write_bytes((root / "p 0" / "1.jpg").read_bytes()[:-200])
        found = read("\n".join(f"p 0/{sample}.jpg {POINTS}" for sample in range(2)))
        assert found.rows[0].image == "not a JPEG, PNG, WebP or BMP file"
        assert found.rows[1].image == "truncated: no end-of-image marker"

    @pytest.mark.parametrize(
        "line",
        ["a.jpg", "a.jpg 1 2 3", f"a.jpg {POINTS} 1 2", f"a.jpg 1 2 3 4 0.9 {POINTS}", f"{POINTS}", f"a.txt {POINTS}",
         "a.jpg 1 2 3 4 5 6 7 8 9 x", "name x1 y1 x2 y2 x3 y3 x4 y4 x5 y5"],
    )  # fmt: skip
    def test_an_error_about_an_invalid_line_gives_its_number(self, read: Callable[[str], Any], line: str) -> None:
        with pytest.raises(ValueError, match=r"points\.txt, line 2: expected an image's name and ten numbers, found"):
            read(f"p 0/0.jpg {POINTS}\n{line}\n")

    def test_names_may_have_blanks_and_other_separators_and_lines_any_end(self, tmp_path: Path) -> None:
        names = ["John  Smith/a b.jpg", "x\u2028y/1.JPG", "z\x0c/1.png"]
        text = "\ufeff" + "".join(f"{name}\t{POINTS} 0.5 \r\n" for name in names)
        (tmp_path / "points.txt").write_bytes(text.encode())
        found = read_landmarks(str(tmp_path / "points.txt"))
        assert list(found.points) == names
        assert all(points.shape == (5, 2) for points in found.points.values())

    def test_a_missing_file_is_an_error(self, root: Path) -> None:
        reader = open_reader(FolderSource(path=str(root), landmarks=str(root / "nowhere.txt")))
        with pytest.raises(FileNotFoundError, match=r"there is no landmarks file .*nowhere\.txt"):
            reader.describe()


def write_sources(root: Path) -> dict[str, Source]:
    """The same four faces in every format."""
    faces = [(f"p{i // 2}", draw_jpeg(0, i // 2, i % 2)) for i in range(4)]
    for i, (label, image) in enumerate(faces):
        (root / "folder" / label).mkdir(parents=True, exist_ok=True)
        (root / "folder" / label / f"{i}.jpg").write_bytes(image)
    (root / "points.txt").write_text("".join(f"p{i // 2}/{i}.jpg {POINTS}\n" for i in range(4)))
    for name in ("rec/a.rec", "rec/sub/b.rec"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        data = [struct.pack("<IfQQ", 0, i // 2, i, 0) + image for i, (_, image) in enumerate(faces)]
        framed = [struct.pack("<II", 0xCED7230A, len(some)) + some + bytes(-len(some) % 4) for some in data]
        (root / name).write_bytes(b"".join(framed))
        offsets = np.cumsum([0, *map(len, framed)])[:4].tolist()
        index = "".join(f"{key}\t{offset}\n" for key, offset in zip((5, 7, 6, 4), offsets, strict=True))
        (root / name).with_suffix(".idx").write_text(index)
    (root / "one").mkdir()
    for name in ("a.rec", "a.idx"):
        shutil.copy(root / "rec" / name, root / "one" / name)
    (root / "one" / "property").write_text("9,112,112")
    columns = {"image": pa.array([{"bytes": image, "path": ""} for _, image in faces]), "label": [0, 0, 1, 1]}
    found = pa.table(columns)
    for name in ("tables/x/a", "tables/b"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(found, root / f"{name}.parquet", row_group_size=3)
        with pa.ipc.new_stream(root / f"{name}.arrow", found.schema) as writer:
            writer.write_table(found, max_chunksize=3)
    shutil.make_archive(str(root / "tars" / "a"), "tar", root / "folder")
    shutil.make_archive(str(root / "tars" / "b"), "tar", root / "folder", "p1")
    return {
        "folder": FolderSource(path="folder"),
        "folder with points": FolderSource(path="folder", landmarks="points.txt"),
        "RecordIO folder": RecordIOSource(path="rec"),
        "RecordIO pattern": RecordIOSource(path="rec/*.rec"),
        "RecordIO file": RecordIOSource(path="one/a.rec"),
        "WebDataset folder": WebDatasetSource(path="tars"),
        "WebDataset pattern": WebDatasetSource(path="tars/[a-b].tar"),
        "WebDataset file": WebDatasetSource(path="tars/b.tar"),
        "Parquet folder": TableSource(path="tables/"),
        "Parquet pattern": TableSource(path="tables/**/*.parquet"),
        "Arrow folder": TableSource(kind="arrow", path="tables"),
        "Arrow file": TableSource(kind="arrow", path="tables/x/a.arrow"),
    }


def at(source: Source, base: str) -> Source:
    """The same source, below another folder."""
    changes = {"path": f"{base}/{source.path}"}  # type: ignore[union-attr]
    if isinstance(source, FolderSource) and source.landmarks:
        changes["landmarks"] = f"{base}/{source.landmarks}"
    return source.model_copy(update=changes)


def test_every_format_is_read_from_s3_as_from_the_disk(
    tmp_path: Path, upload: Upload, read_source: Read, caplog: pytest.LogCaptureFixture
) -> None:
    sources = write_sources(tmp_path / "data")
    remote = upload(tmp_path / "data")
    for name, source in sources.items():
        here, there = at(source, str(tmp_path / "data")), at(source, remote)
        assert open_reader(here).describe() == open_reader(there).describe(), name
        assert list(open_reader(here).files) == list(open_reader(there).files), name
        caplog.clear()
        expected = read_source(here)
        logged = caplog.messages
        caplog.clear()
        assert read_source(there) == expected, name
        assert caplog.messages == logged, name
        assert expected.faults == [], name
        assert {type(row.image) for row in expected.rows} == {bytes}, name
        assert ("says 9 identities" in caplog.text) == (name == "RecordIO file")
    assert len(read_source(at(sources["RecordIO folder"], remote)).rows) == 8
    assert len(read_source(at(sources["RecordIO pattern"], remote)).rows) == 4
    assert read_source(at(sources["RecordIO file"], remote)).rows[0].name == "a.rec#5"


def test_on_s3_hidden_files_are_skipped_and_vanished_ones_are_rejected(tmp_path: Path, upload: Upload) -> None:
    import s3fs

    names = ["a/1.jpg", "a/2.jpg", "a/.x.jpg", ".b/1.jpg", "a/nested/3.jpg", "a/notes.txt", "top.jpg", "c/readme"]
    address = upload(fill(tmp_path / "data", names))
    reader = FolderReader(FolderSource(path=address))
    assert reader.names(np.arange(2)) == ["a/1.jpg", "a/2.jpg"]
    assert len(reader.listing.person_R) == 2
    s3fs.S3FileSystem().rm(f"{address}/a/1.jpg")
    refused, content = reader.read(np.arange(2))
    assert str(refused).startswith("cannot be read: ")
    assert content == b"a/2.jpg"


def test_on_s3_a_missing_folder_is_an_error(s3_url: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder s3://"):
        open_reader(FolderSource(path=f"{s3_url}/nowhere"))
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder s3://"):
        open_reader(RecordIOSource(path=f"{s3_url}/nowhere"))
    with pytest.raises(FileNotFoundError, match=r"holds no RecordIO files"):
        open_reader(RecordIOSource(path=f"{s3_url}/nowhere/*.rec"))


def test_a_looping_link_is_quarantined_by_its_name(read_source: Read, tmp_path: Path) -> None:
    fill(tmp_path, ["a/1.jpg"])
    (tmp_path / "a/2.jpg").symlink_to(tmp_path / "a/2.jpg")
    (tmp_path / "b").symlink_to(tmp_path / "b")
    found = read_source(FolderSource(path=str(tmp_path)))
    assert [row.name for row in found.rows] == ["a/1.jpg"]
    reason = f"cannot be read: {os.strerror(errno.ELOOP)}"
    assert sorted(found.faults) == [("a/2.jpg", reason), ("b", reason)]


@pytest.mark.parametrize(("code", "lost"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_read_error_of_one_file_is_quarantined_and_one_of_the_machine_is_not(
    read_source: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, lost: bool
) -> None:
    fill(tmp_path, ["a/1.jpg", "a/2.jpg"])

    def fail(path: Path) -> bytes:
        if path.name == "2.jpg":
            raise OSError(code, os.strerror(code), str(path))
        return b"1"

    monkeypatch.setattr(Path, "read_bytes", fail)
    if not lost:
        with pytest.raises(OSError, match="Too many open files"):
            read_source(FolderSource(path=str(tmp_path)))
        return
    found = read_source(FolderSource(path=str(tmp_path)))
    assert [(row.name, row.image) for row in found.rows] == [
        ("a/1.jpg", b"1"),
        ("a/2.jpg", f"cannot be read: {os.strerror(code)}"),
    ]


def test_links_out_of_the_source_are_announced(
    read_source: Read, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "real", ["a/1.jpg"])
    fill(tmp_path / "data", ["b/1.jpg"])
    (tmp_path / "data/b/2.jpg").symlink_to(tmp_path / "data/b/1.jpg")
    with caplog.at_level("WARNING"):
        read_source(FolderSource(path=str(tmp_path / "data")))
    assert caplog.text == ""
    (tmp_path / "data/b/3.jpg").symlink_to(tmp_path / "real/a/1.jpg")
    with caplog.at_level("WARNING"):
        read_source(FolderSource(path=str(tmp_path / "data")))
    assert f"1 link leads out of {tmp_path}/data, which reading follows" in caplog.text
    assert f"b/3.jpg -> {tmp_path}/real/a/1.jpg" in caplog.text
