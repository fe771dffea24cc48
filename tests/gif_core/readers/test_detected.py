"""Sources of photographs with `detect: true`: aligned faces, reasons for the others, the same bytes for any workers."""

import hashlib
import shutil
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from gif_core.detection import DetectorMissingError
from gif_core.images import LIMITS, BadImageError, Faces, decode_bounded
from gif_core.ingestion import ingest
from gif_core.readers import open_reader
from gif_core.readers.detected import DetectingReader, ResultLog
from schemas.ingestion import FolderSource, IngestionConfig, Source, TableSource, WebDatasetSource


@pytest.fixture
def album(tmp_path: Path, photographs: Path) -> Path:
    """Two people with four good photographs each, one without a face, one of two people, one that is no image."""
    folder = tmp_path / "album"
    for person in ("Colin_Powell", "Serena_Williams"):
        (folder / person).mkdir(parents=True)
        for path in sorted((photographs / person).glob("*.jpg"))[:4]:
            shutil.copy(path, folder / person / path.name)
    powell, williams = (cv2.imread(str(path)) for path in sorted(folder.glob("*/*_0001.jpg")))
    cv2.imwrite(str(folder / "Colin_Powell" / "both.jpg"), np.concatenate([powell, williams], axis=1))
    cv2.imwrite(str(folder / "Colin_Powell" / "nobody.jpg"), np.full((200, 300, 3), 90, np.uint8))
    (folder / "Serena_Williams" / "text.jpg").write_text("no image")
    return folder


def convert(source: Source, folder: Path, workers: int) -> dict[str, str]:
    """Digests of all files of an ingestion."""
    config = IngestionConfig(sources=(source,), max_bad_fraction=0.5)
    for _ in ingest(config, [open_reader(source)], folder, workers=workers):
        pass
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("[!.]*.*")}


def quarantine(folder: Path) -> dict[str, str]:
    rows = pq.read_table(folder / "quarantine.parquet").to_pylist()
    return {row["record"]: row["reason"] for row in rows}


@pytest.mark.usefixtures("detector")
def test_faces_are_aligned_others_are_quarantined_and_workers_change_no_byte(album: Path, tmp_path: Path) -> None:
    source = FolderSource(path=str(album), detect=True)
    one, three = (convert(source, tmp_path / str(workers), workers) for workers in (1, 3))
    assert one == three
    faces = Faces([tmp_path / "1" / "identities-00000.arrow"])
    assert faces.labels_N.tolist() == [0] * 4 + [1] * 4
    assert {decode_bounded(bytes(faces.content(row))).shape for row in range(8)} == {(112, 112, 3)}
    reasons = quarantine(tmp_path / "1")
    assert reasons["Colin_Powell/both.jpg"] == "several faces: 2 of similar size"
    assert reasons["Colin_Powell/nobody.jpg"] == "no face: no face was found in this image of 300×200 pixels"
    assert reasons["Serena_Williams/text.jpg"].startswith("not a JPEG")
    assert len(reasons) == 3


@pytest.mark.usefixtures("detector")
def test_archives_and_tables_give_the_same_faces_as_the_folder(album: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "album.tar", "w") as archive:
        archive.add(album, "album")
    paths = sorted(album.glob("*/*.jpg"))
    mixed = paths[::2] + paths[1::2]
    columns = {"image": [path.read_bytes() for path in mixed], "label": [path.parent.name for path in mixed]}
    pq.write_table(pa.table(columns), tmp_path / "album.parquet")
    found = {}
    for source in (
        FolderSource(path=str(album), detect=True),
        WebDatasetSource(path=str(tmp_path / "album.tar"), detect=True),
        TableSource(path=str(tmp_path / "album.parquet"), detect=True),
    ):
        convert(source, tmp_path / source.kind, workers=2)
        shards = Faces([tmp_path / source.kind / "identities-00000.arrow"])
        found[source.kind] = {hashlib.sha256(shards.content(row)).hexdigest() for row in range(len(shards))}
        assert len(quarantine(tmp_path / source.kind)) == 3
    assert found["folder"] == found["webdataset"] == found["parquet"]
    assert len(found["folder"]) == 8


@pytest.mark.usefixtures("detector")
def test_photographs_that_were_done_are_not_looked_at_again(
    album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FolderSource(path=str(album), detect=True)
    records, first = np.arange(11), open_reader(source)
    assert isinstance(first, DetectingReader)
    with first.detecting(tmp_path / "log", 2):
        before = list(map(str, first.read(records[:7])))
    with (tmp_path / "log").open("ab") as log:
        log.write(b"\x07\0\0\0\0\0\0\0half a result")
    shutil.rmtree(album / "Colin_Powell")
    again = DetectingReader(first.reader, LIMITS)
    with again.detecting(tmp_path / "log", 1):
        assert list(map(str, again.read(records[:7]))) == before
        assert len(list(again.read(records))) == 11, "the half result was cut off, and the rest is detected"
        monkeypatch.setattr(again, "reader", None)
        assert [isinstance(each, BadImageError) for each in again.read(records)].count(True) == 3


def test_a_log_keeps_images_and_reasons_and_forgets_what_is_damaged(tmp_path: Path) -> None:
    with ResultLog(tmp_path / "log") as log:
        for record in range(4):
            log.add(record, b"image %d" % record if record % 2 else BadImageError(f"reason {record}"))
    content = bytearray((tmp_path / "log").read_bytes())
    content[-1] ^= 1
    (tmp_path / "log").write_bytes(content)
    with ResultLog(tmp_path / "log") as log:
        assert [record in log for record in range(4)] == [True, True, True, False]
        assert log.read(1) == b"image 1"
        assert str(log.read(2)) == "reason 2"
        log.add(3, b"once more")
    with ResultLog(tmp_path / "log") as log:
        assert log.read(3) == b"once more"


def test_detection_is_part_of_the_key_only_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"anything")
    pq.write_table(pa.table({"image": [b""], "label": [1]}), tmp_path / "t.parquet")
    plain = open_reader(FolderSource(path=str(tmp_path))).describe()
    assert open_reader(FolderSource(path=str(tmp_path), detect=True)).describe().keys() - plain.keys() == {"detect"}
    assert "detect" not in open_reader(TableSource(path=str(tmp_path))).describe()


@pytest.mark.usefixtures("no_detector")
def test_without_a_detector_ingestion_says_so_before_it_reads(album: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorMissingError, match="gif detector install"):
        convert(FolderSource(path=str(album), detect=True), tmp_path / "out", workers=1)


def test_landmarks_and_detection_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="give landmarks or detect: true, not both"):
        FolderSource(path="photos", landmarks="points.txt", detect=True)
