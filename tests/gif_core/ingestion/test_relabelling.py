"""Lists of wrong labels are applied to every format, change the key, and are refused when they do not fit."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.images import Faces
from gif_core.ingestion import (
    Change,
    RelabellingError,
    describe_relabelling,
    ingest,
    read_relabelling,
    stage,
    write_relabelling,
)
from gif_core.ingestion.relabelling import COLUMNS, FIRST_LINE
from gif_core.planning import check_before_run, identify_stage, stage_settings
from gif_core.planning.checks import CannotRunError
from gif_core.readers import open_reader
from gif_core.synthetic import draw_jpeg
from gif_core.writers import ExportInfo, Face, write_recordio, write_webdataset
from schemas.ingestion import (
    FolderSource,
    IngestionConfig,
    RecordIOSource,
    Source,
    SyntheticSource,
    TableSource,
    WebDatasetSource,
)
from schemas.loading import load_config
from schemas.run import RunConfig

PERSONS, IMAGES = 4, 4
FACES = [Face(person, draw_jpeg(0, person, sample)) for sample in range(IMAGES) for person in range(PERSONS)]
LABELS = [f'p,"{person}' for person in range(PERSONS)]
HEAD = f"{FIRST_LINE}\n{','.join(COLUMNS)}\n"
Ingested = dict[bytes, tuple[str, str]]
"""Label and name of each image."""


def make_source(kind: str, folder: Path) -> Source:
    """The same faces in every format; in files of many images identities are mixed."""
    folder.mkdir()
    info = ExportInfo(LABELS, len(FACES))
    if kind == "folder":
        for number, face in enumerate(FACES):
            (folder / LABELS[face.identity_id]).mkdir(exist_ok=True)
            (folder / LABELS[face.identity_id] / f"{number}.jpg").write_bytes(face.image)
        return FolderSource(path=str(folder))
    if kind == "recordio":
        list(write_recordio(sorted(FACES, key=lambda face: face.identity_id), info, folder))
        return RecordIOSource(path=str(folder))
    if kind == "webdataset":
        list(write_webdataset(iter(FACES), info, folder, shard_bytes=20_000))
        return WebDatasetSource(path=str(folder))
    if kind == "parquet":
        columns = {"image": [face.image for face in FACES], "label": [LABELS[face.identity_id] for face in FACES]}
        pq.write_table(pa.table(columns), folder / "faces.parquet")
        return TableSource(path=str(folder))
    return SyntheticSource(identities=PERSONS, smallest=IMAGES, largest=IMAGES)


def run(config: IngestionConfig, out: Path) -> Ingested:
    out.mkdir()
    list(ingest(config, [open_reader(source) for source in config.sources], out))
    faces = Faces(sorted(out.glob("*.arrow")))
    labels = pq.read_table(out / "identities.parquet")["label"].to_pylist()
    ids = faces.labels_N.tolist()
    return {bytes(faces.content(row)): (labels[ids[row]], faces.name(row)) for row in range(len(faces))}


def write_list(path: Path, changes: list[Change]) -> str:
    write_relabelling(path, changes)
    return str(path)


def publish(config: RunConfig) -> Artifact:
    """Run the stage on a store."""
    store = ArtifactStore(config.store)
    identity = identify_stage(store, config, "ingestion", {})
    with store.draft(identity.ref, identity.settings, identity.made_from) as draft:
        list(stage.run(config, {}, draft))
        store.publish(draft)
    return store.open(identity.ref)


def of_label(before: Ingested, label: str) -> list[tuple[bytes, str]]:
    return [(image, name) for image, (known, name) in before.items() if known == label]


@pytest.mark.parametrize("kind", ["synthetic", "folder", "recordio", "webdataset", "parquet"])
def test_images_of_every_format_are_moved_to_known_and_new_labels_or_left_out(tmp_path: Path, kind: str) -> None:
    source = make_source(kind, tmp_path / "source")
    before = run(IngestionConfig(sources=(source,)), tmp_path / "before")
    a, b, c, d = dict.fromkeys(label for label, _ in before.values())
    (moved, moved_name), (dropped, dropped_name) = of_label(before, a)[1], of_label(before, b)[0]
    changes = [Change(0, moved_name, a, b, "flipped", "2.5"), Change(0, dropped_name, b, "", "stray", "1.5")]
    changes += [Change(0, name, c, f"{c}~2", "mixed") for _, name in of_label(before, c)[:2]]
    changes += [Change(0, name, d, a, "duplicate") for _, name in of_label(before, d)]
    path = write_list(tmp_path / "list.csv", changes)
    after = run(IngestionConfig(sources=(source,), relabel=path), tmp_path / "after")
    expected = {image: label for image, (label, _) in before.items() if image != dropped} | {moved: b}
    expected |= {image: f"{c}~2" for image, _ in of_label(before, c)[:2]} | {
        image: a for image, _ in of_label(before, d)
    }
    assert {image: label for image, (label, _) in after.items()} == expected
    table = pq.read_table(tmp_path / "after" / "identities.parquet").to_pylist()
    assert {row["label"]: row["num_samples"] for row in table} == {a: 7, b: 4, c: 2, f"{c}~2": 2}
    assert pq.read_table(tmp_path / "after" / "quarantine.parquet").to_pylist() == [
        {"source": 0, "record": dropped_name, "reason": "dropped by ingestion.relabel: stray"}
    ]


def test_a_second_list_continues_from_the_labels_of_the_first(tmp_path: Path) -> None:
    source = make_source("folder", tmp_path / "source")
    names = [f"{LABELS[0]}/0.jpg", f"{LABELS[1]}/1.jpg"]
    first = write_list(tmp_path / "first.csv", [Change(0, name, name[:4], "both") for name in names])
    second = write_list(tmp_path / "second.csv", [Change(0, names[0], "both", LABELS[2])])
    found = run(IngestionConfig(sources=(source,), relabel=(first, second)), tmp_path / "out")
    labels = {name: label for label, name in found.values()}
    assert (labels[names[0]], labels[names[1]]) == (LABELS[2], "both")
    with pytest.raises(RelabellingError, match="both"):
        run(IngestionConfig(sources=(source,), relabel=(second, first)), tmp_path / "other order")


def test_dropped_images_do_not_count_as_bad_ones(tmp_path: Path) -> None:
    source = make_source("folder", tmp_path / "source")
    names = [f"{LABELS[0]}/{number}.jpg" for number in (0, 4, 8, 12)]
    path = write_list(tmp_path / "list.csv", [Change(0, name, LABELS[0], "") for name in names])
    config = IngestionConfig(sources=(source,), relabel=path, max_bad_fraction=0)
    assert {label for label, _ in run(config, tmp_path / "out").values()} == set(LABELS[1:])


def test_rows_about_unknown_images_are_refused_with_their_names(tmp_path: Path) -> None:
    source = make_source("folder", tmp_path / "source")
    known = Change(0, f"{LABELS[0]}/0.jpg", LABELS[0], LABELS[1])
    for wrong in (known._replace(record="gone.jpg"), known._replace(label="nobody"), known._replace(source=3)):
        path = write_list(tmp_path / "list.csv", [known, wrong])
        with pytest.raises(RelabellingError, match="1 of 2 rows") as error:
            run(
                IngestionConfig(sources=(source,), relabel=path),
                tmp_path / f"{wrong.record[:3]}{wrong.source}{wrong.label[:2]}",
            )
        assert f"source {wrong.source}: {wrong.record} of {wrong.label}" in str(error.value)
        assert "audit again" in str(error.value)
    path = write_list(tmp_path / "list.csv", [known, known])
    with pytest.raises(RelabellingError, match="twice"):
        run(IngestionConfig(sources=(source,), relabel=path), tmp_path / "twice")


def test_a_source_that_has_grown_keeps_its_changed_labels_and_only_new_images_are_read(
    tiny: RunConfig, tmp_path: Path
) -> None:
    make_source("folder", tmp_path / "source")
    name = f"{LABELS[0]}/0.jpg"
    changes = [Change(0, name, LABELS[0], LABELS[1]), Change(0, f"{LABELS[1]}/1.jpg", LABELS[1], "", "stray")]
    path = write_list(tmp_path / "list.csv", changes)
    source = f"ingestion.sources=[{{kind: folder, path: {tmp_path}/source}}]"
    config = load_config(tiny, [source, f"ingestion.relabel={path}", "ingestion.held_out=0"])
    before = publish(config)
    (tmp_path / "source" / LABELS[1] / "new.jpg").write_bytes(draw_jpeg(0, 1, 99))
    after = publish(config)
    assert after.settings["grown_from"] == before.ref.key
    assert after.manifest.metrics["images_read"] == 1
    assert {name: after.manifest.metrics[name] for name in ("moved", "dropped", "quarantine")} == {
        "moved": 1,
        "dropped": 1,
        "quarantine": 1,
    }
    counts = [pq.read_table(each.path("identities.parquet"))["num_samples"].to_pylist() for each in (before, after)]
    assert counts == [[3, 4, 4, 4], [3, 5, 4, 4]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with the line '# gif relabel 1'"),
        (b"# gif relabel 2\nsource,record\n", "must begin with the line"),
        (b"\x89PNG\r\n\x1a\n\xff", "not UTF-8"),
        (f"{FIRST_LINE}\nsource,record,label\n".encode(), "the columns must be source,record,label,new_label"),
        (f"{HEAD}0,a.jpg,a,b\n".encode(), "line 3: 4 cells instead of 6"),
        (f"{HEAD}one,a.jpg,a,b,,\n".encode(), "line 3: source 'one'"),
        (f"{HEAD}-1,a.jpg,a,b,,\n".encode(), "line 3: source '-1'"),
        (f"{HEAD}0,,a,b,,\n".encode(), "line 3: record and label must not be empty"),
        (f"{HEAD}0,a.jpg,a,{'b' * 1001},,\n".encode(), "too long for a label"),
        (f'{HEAD}0,"a.jpg,a,b,,\n'.encode(), "line 3: not CSV"),
    ],
)
def test_damaged_lists_are_refused_with_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(RelabellingError, match=r"list\.csv") as error:
        read_relabelling(str(tmp_path / "list.csv"))
    assert message in str(error.value)


def test_a_list_survives_a_spreadsheet(tmp_path: Path) -> None:
    text = f"\ufeff{FIRST_LINE},,,,,\r\n{','.join(COLUMNS)}\r\n0,a b.jpg,a,,stray,1.2\r\n\r\n"
    (tmp_path / "list.csv").write_bytes(text.encode())
    assert read_relabelling(str(tmp_path / "list.csv")).changes == [Change(0, "a b.jpg", "a", "", "stray", "1.2")]


def test_names_with_quotes_commas_and_lines_are_read_back(tmp_path: Path) -> None:
    changes = [Change(0, 'a,"b"\n\r.jpg', "=1+1", "ä,\n", "why", "1.0")]
    assert read_relabelling(write_list(tmp_path / "list.csv", changes)).changes == changes


def test_the_content_of_a_list_is_in_the_key_and_its_place_is_not(tiny: RunConfig, tmp_path: Path) -> None:
    store = ArtifactStore(tiny.store)
    one = write_list(tmp_path / "one.csv", [Change(0, "a", "a", "b")])
    moved = write_list(tmp_path / "moved.csv", [Change(0, "a", "a", "b")])
    other = write_list(tmp_path / "other.csv", [Change(0, "a", "a", "c")])
    first, second, third = (
        stage_settings(store, load_config(tiny, [f"ingestion.relabel={path}"]), "ingestion")
        for path in (one, moved, other)
    )
    assert first == second != third
    assert first["relabel"] == describe_relabelling([one])
    assert "relabel" not in stage_settings(store, tiny, "ingestion")


def test_a_run_with_a_missing_list_is_refused_before_its_first_stage(tiny: RunConfig, tmp_path: Path) -> None:
    config = load_config(tiny, [f"ingestion.relabel={tmp_path}/none.csv"])
    with pytest.raises(CannotRunError, match=r"there is no file .*none\.csv; 'gif faces audit' writes one"):
        check_before_run(ArtifactStore(tiny.store), config, ["ingestion"])
