import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.images import Faces
from gif_core.ingestion import ingest
from gif_core.protocols.sets.bin import parse_pair_file
from gif_core.readers import open_reader
from gif_core.synthetic import draw_jpeg
from gif_core.writers import FORMATS, ExportInfo, Face, write_webdataset
from schemas.ingestion import FolderSource, IngestionConfig, RecordIOSource, Source, TableSource, WebDatasetSource

LABELS = ["ann", "bø b", "Cy.", "../dee", "ea", "fay%20"]
COUNTS = [3, 1, 4, 2, 1, 5]
IDENTITIES = np.repeat(np.arange(len(COUNTS)), COUNTS).tolist()
NAMES = {"Cy.": "Cy%2E", "../dee": "%2E.%2Fdee", "bø b": "b%C3%B8%20b", "fay%20": "fay%2520"}
"""Labels that are other names in a folder."""
Read = Callable[[Source], Any]


@pytest.fixture(scope="module")
def faces() -> list[Face]:
    samples = [sample for count in COUNTS for sample in range(count)]
    return [Face(person, draw_jpeg(0, person, sample)) for person, sample in zip(IDENTITIES, samples, strict=True)]


def export(faces: list[Face], name: str, folder: Path) -> Path:
    folder.mkdir()
    assert len(list(FORMATS[name](iter(faces), ExportInfo(LABELS, len(faces)), folder))) == len(faces)
    return folder


def write_table(faces: list[Face], path: Path) -> Path:
    """The file of a dataset with an image and a class, as Hugging Face's library writes it."""
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": bytes(face.image), "path": f"{row}.jpg"} for row, face in enumerate(faces)]
    columns = {"image": pa.array(cells, image), "label": pa.array([face.identity_id for face in faces], pa.int64())}
    features = {"image": {"_type": "Image"}, "label": {"names": LABELS, "_type": "ClassLabel"}}
    about = json.dumps({"info": {"features": features}}).encode()
    table = pa.table(columns).replace_schema_metadata({b"huggingface": about})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=5)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return path


def write_all(faces: list[Face], root: Path) -> dict[str, Source]:
    """The same faces in every format that can be read."""
    return {
        "recordio": RecordIOSource(path=str(export(faces, "recordio", root / "recordio"))),
        "folder": FolderSource(path=str(export(faces, "folder", root / "folder"))),
        "webdataset": WebDatasetSource(path=str(export(faces, "webdataset", root / "webdataset"))),
        "parquet": TableSource(path=str(write_table(faces, root / "a.parquet"))),
        "arrow": TableSource(kind="arrow", path=str(write_table(faces, root / "a.arrow"))),
    }


def expected_label(kind: str, person: int) -> str:
    if kind == "recordio":
        return str(person)
    return NAMES.get(LABELS[person], LABELS[person]) if kind == "folder" else LABELS[person]


@pytest.mark.parametrize("kind", ["recordio", "folder", "webdataset", "parquet", "arrow"])
def test_what_is_written_is_read_back_byte_for_byte(
    faces: list[Face], tmp_path: Path, kind: str, read_source: Read, caplog: pytest.LogCaptureFixture
) -> None:
    found = read_source(write_all(faces, tmp_path)[kind])
    order = sorted if kind == "folder" else list
    assert found.faults == []
    assert order(found.faces) == order((expected_label(kind, face.identity_id), face.image) for face in faces)
    assert caplog.messages == []


def test_recordio_is_read_back_without_its_index(faces: list[Face], tmp_path: Path, read_source: Read) -> None:
    folder = export(faces, "recordio", tmp_path / "out")
    (folder / "train.idx").unlink()
    found = read_source(RecordIOSource(path=str(folder)))
    assert found.faults == []
    assert found.faces == [(str(face.identity_id), face.image) for face in faces]
    assert [row.name for row in found.rows] == [f"train.rec#{key}" for key in range(1, len(faces) + 1)]


def test_images_with_the_magic_in_them_survive_recordio(tmp_path: Path, read_source: Read) -> None:
    magic = bytes.fromhex("0a23d7ce")
    images = [b"\xff\xd8\xff" + b"x" * pad + magic * copies for pad in range(4) for copies in range(4)]
    folder = export([Face(i // 4, image) for i, image in enumerate(images)], "recordio", tmp_path / "out")
    found = read_source(RecordIOSource(path=str(folder)))
    assert [image for _, image in found.faces] == images


def test_webdataset_is_read_back_from_many_archives(faces: list[Face], tmp_path: Path, read_source: Read) -> None:
    list(write_webdataset(iter(faces), ExportInfo(LABELS, len(faces)), tmp_path, shard_bytes=20_000))
    assert len(list(tmp_path.iterdir())) > 3
    found = read_source(WebDatasetSource(path=str(tmp_path)))
    assert found.faces == [(LABELS[face.identity_id], face.image) for face in faces]


def test_pairs_are_read_back_byte_for_byte(faces: list[Face], tmp_path: Path) -> None:
    found = parse_pair_file((export(faces, "bin", tmp_path / "out") / "pairs.bin").read_bytes(), "pairs.bin")
    assert found.images == [face.image for face in faces]
    assert found.same_P.tolist() == [
        left == right for left, right in zip(IDENTITIES[::2], IDENTITIES[1::2], strict=True)
    ]


def test_every_format_is_ingested_to_the_same_faces(faces: list[Face], tmp_path: Path) -> None:
    expected = sorted((face.identity_id, face.image) for face in faces)
    for kind, source in write_all(faces, tmp_path).items():
        out = tmp_path / f"ingested {kind}"
        out.mkdir()
        config = IngestionConfig(sources=(source,), decode_all=True)
        list(ingest(config, [open_reader(source)], out))
        labels = pq.read_table(out / "identities.parquet")["label"].to_pylist()
        identities = {expected_label(kind, person): person for person in range(len(LABELS))}
        ingested = Faces(sorted(out.glob("identities-*.arrow")))
        rows = [
            (identities[labels[label]], bytes(ingested.content(row))) for row, label in enumerate(ingested.labels_N)
        ]
        assert sorted(rows) == expected, kind
        assert len(pq.read_table(out / "quarantine.parquet")) == 0


def test_a_table_of_mixed_identities_is_ingested_as_one_of_grouped_ones(faces: list[Face], tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(len(faces))
    grouped = sorted(order.tolist(), key=lambda i: [faces[j].identity_id for j in order].index(faces[i].identity_id))
    contents = []
    for name, rows in (("mixed", order.tolist()), ("grouped", grouped)):
        path = write_table([faces[i] for i in rows], tmp_path / f"{name}.parquet")
        out = tmp_path / name
        out.mkdir()
        source = TableSource(path=str(path))
        list(ingest(IngestionConfig(sources=(source,)), [open_reader(source)], out))
        ingested = Faces(sorted(out.glob("identities-*.arrow")))
        images = [bytes(ingested.content(row)) for row in range(len(ingested))]
        contents.append((images, ingested.labels_N.tolist(), pq.read_table(out / "identities.parquet").to_pylist()))
    assert contents[0] == contents[1]
