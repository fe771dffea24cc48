import hashlib
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from gif_core.images import Faces, decode
from gif_core.images import blocks as image_blocks
from gif_core.ingestion import catalogue, describe_readers, ingest
from gif_core.ingestion.conversion import TooManyBadImagesError, place_of
from gif_core.readers import open_reader
from gif_core.synthetic import draw_jpeg
from schemas.ingestion import FolderSource, IngestionConfig, RecordIOSource, Source, SyntheticSource

IDENTITIES = SyntheticSource(identities=12, smallest=2, largest=5)


def run(config: IngestionConfig, folder: Path, workers: int = 1) -> Path:
    folder.mkdir()
    readers = [open_reader(source) for source in config.sources]
    steps = list(ingest(config, readers, folder, workers=workers))
    assert steps[-1].images == steps[-1].total
    return folder


def describe(source: Source) -> list[dict[str, Any]]:
    return describe_readers([open_reader(source)])


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def write_folder(root: Path, identities: int = 3, samples: int = 2) -> Path:
    for person in range(identities):
        (root / f"p{person}").mkdir(parents=True)
        for sample in range(samples):
            (root / f"p{person}" / f"{sample}.jpg").write_bytes(draw_jpeg(0, person, sample))
    return root


def write_records(path: Path, identities: int, samples: int) -> Path:
    """A RecordIO file in which identities are mixed, and a few images cut off."""
    with path.open("wb") as file:
        for key in range(identities * samples):
            image = draw_jpeg(0, key % identities, key // identities)[: -9 if key % 50 == 7 else None]
            data = struct.pack("<IfQQ", 0, key % identities, key, 0) + image
            file.write(struct.pack("<II", 0xCED7230A, len(data)) + data + bytes(-len(data) % 4))
    return path


def test_the_bytes_depend_neither_on_the_number_of_workers_nor_on_the_size_of_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "data", identities=30, samples=5)
    mixed = RecordIOSource(path=str(write_records(tmp_path / "mixed.rec", identities=30, samples=5)))
    many = SyntheticSource(identities=30, smallest=4, largest=9)
    for source in (many, FolderSource(path=str(root)), mixed):
        config = IngestionConfig(sources=(source,), held_out=0.4, shard_bytes=2**16, max_bad_fraction=0.1)
        whole = run(config, tmp_path / f"{source.kind}-whole", 1)
        monkeypatch.setattr(catalogue, "UNIT_RECORDS", 7)
        two, eight = (run(config, tmp_path / f"{source.kind}-{workers}", workers) for workers in (2, 8))
        assert digests(two) == digests(eight) == digests(whole)
        monkeypatch.undo()
        assert len(list(two.glob("identities-*.arrow"))) > 1


def test_image_bytes_are_untouched_and_grouped_by_identity(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    out = run(IngestionConfig(sources=(FolderSource(path=str(root)),)), tmp_path / "out")
    faces = Faces(sorted(out.glob("identities-*.arrow")))
    assert faces.labels_N.tolist() == [0, 0, 1, 1, 2, 2]
    assert bytes(faces.content(3)) == (root / "p1" / "1.jpg").read_bytes()
    assert pq.read_table(out / "identities.parquet")["label"].to_pylist() == ["p0", "p1", "p2"]


def test_shards_are_cut_and_read_in_any_order(tmp_path: Path) -> None:
    out = run(IngestionConfig(sources=(IDENTITIES,), shard_bytes=2**16), tmp_path / "out")
    shards = sorted(out.glob("identities-*.arrow"))
    assert len(shards) > 1
    faces = Faces(shards, workers=3)
    order = np.random.default_rng(0).permutation(len(faces))
    images = faces.load(order)
    assert images.shape == (len(faces), 112, 112, 3)
    assert all(np.array_equal(images[i], decode(faces.content(int(row)))) for i, row in enumerate(order[:5]))


def test_held_out_identities_are_in_no_training_shard(tmp_path: Path) -> None:
    out = run(IngestionConfig(sources=(IDENTITIES,), held_out=0.5), tmp_path / "out")
    train = set(pq.read_table(out / "identities.parquet")["label"].to_pylist())
    held_out = set(pq.read_table(out / "held_out.parquet")["label"].to_pylist())
    assert held_out
    assert not train & held_out
    assert len(train | held_out) == 12
    faces = Faces(sorted(out.glob("held_out-*.arrow")))
    assert set(faces.labels_N.tolist()) == set(range(len(held_out)))


def test_who_is_held_out_stays_held_out_when_the_source_grows(tmp_path: Path) -> None:
    def held_out(identities: int) -> set[str]:
        source = SyntheticSource(identities=identities, smallest=2, largest=2)
        out = run(IngestionConfig(sources=(source,), held_out=0.3), tmp_path / str(identities))
        return set(pq.read_table(out / "held_out.parquet")["label"].to_pylist())

    few, many = held_out(20), held_out(40)
    assert few
    assert few == {label for label in many if label < "person-000020"}


def test_identities_that_another_run_holds_out_can_be_left_out(tmp_path: Path) -> None:
    def labels(name: str, **settings: float) -> list[set[str]]:
        source = SyntheticSource(identities=60, smallest=2, largest=2)
        out = run(IngestionConfig(sources=(source,), held_out=0.2, **settings), tmp_path / name)
        return [
            set(pq.read_table(out / f"{split}.parquet")["label"].to_pylist()) for split in ("identities", "held_out")
        ]

    train, test = labels("test")
    develop, development = labels("development", left_out=0.2)
    assert test
    assert development
    assert not test & (develop | development), "neither trained on nor verified"
    assert develop | development == train


def test_shares_that_leave_nobody_to_train_on_are_refused() -> None:
    with pytest.raises(ValueError, match="leave no identity to train on"):
        IngestionConfig(held_out=0.5, left_out=0.5)


def test_the_share_held_out_is_the_one_asked_for() -> None:
    assert 0.09 < np.mean([place_of(0, f"person-{i}") < 0.1 for i in range(20_000)]) < 0.11


def spoil(root: Path) -> None:
    """Leave p1 with nothing usable, and p2 with one image of two."""
    bomb = cv2.imencode(".png", np.zeros((32, 32), np.uint8))[1].tobytes()
    (root / "p1" / "0.jpg").write_bytes(b"not an image")
    (root / "p1" / "1.jpg").write_bytes(b"")
    (root / "p1" / "2.png").write_bytes(bomb[:16] + (60_000).to_bytes(4, "big") * 2 + bomb[24:])
    (root / "p2" / "1.jpg").write_bytes(draw_jpeg(0, 2, 1)[:-500])


def test_bad_images_are_quarantined_with_their_reasons_and_identities_without_any_are_left_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    spoil(root)
    config = IngestionConfig(sources=(FolderSource(path=str(root)),), max_bad_fraction=1)
    out = run(config, tmp_path / "out")
    rows = {row["record"]: row["reason"] for row in pq.read_table(out / "quarantine.parquet").to_pylist()}
    assert rows == {
        "p1/0.jpg": "not a JPEG, PNG, WebP or BMP file",
        "p1/1.jpg": "empty: the file has no bytes",
        "p1/2.png": "too large: 60000×60000, the largest side allowed is 4096",
        "p2/1.jpg": "truncated: no end-of-image marker",
        "p1": "identity left out: only 0 of its 3 images can be used",
    }
    assert pq.read_table(out / "identities.parquet")["label"].to_pylist() == ["p0", "p2"]
    faces = Faces(sorted(out.glob("identities-*.arrow")))
    assert [faces.name(row) for row in range(len(faces))] == ["p0/0.jpg", "p0/1.jpg", "p2/0.jpg"]


def test_too_many_bad_images_stop_the_stage_and_the_error_names_some(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data", identities=20, samples=10)
    (root / "p3" / "4.jpg").write_bytes(b"not an image")
    source = FolderSource(path=str(root))
    run(IngestionConfig(sources=(source,)), tmp_path / "one in 200 is within 1 %")
    for sample in (5, 6):
        (root / "p3" / f"{sample}.jpg").write_bytes(b"not an image")
    with pytest.raises(TooManyBadImagesError, match=r"3 of 200 images are bad.*0\.01.*\n  p3/4\.jpg: not a JPEG"):
        run(IngestionConfig(sources=(source,)), tmp_path / "three are not")


def test_every_image_is_decoded_when_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    monkeypatch.setattr(image_blocks, "check_decodes", decoded.append)
    root = write_folder(tmp_path / "data")
    config = IngestionConfig(sources=(FolderSource(path=str(root)),))
    some = run(config, tmp_path / "some")
    assert decoded == []
    every = run(config.model_copy(update={"decode_all": True}), tmp_path / "all")
    assert sorted(decoded) == sorted(path.read_bytes() for path in root.rglob("*.jpg"))
    assert digests(every) == digests(some)


def test_identities_of_two_sources_with_the_same_label_are_two_identities(tmp_path: Path) -> None:
    roots = [write_folder(tmp_path / name) for name in ("a", "b")]
    config = IngestionConfig(sources=tuple(FolderSource(path=str(root)) for root in roots))
    table = pq.read_table(run(config, tmp_path / "out") / "identities.parquet")
    assert table["identity_id"].to_pylist() == list(range(6))
    assert table["source"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table["label"].to_pylist() == ["p0", "p1", "p2"] * 2


def test_identities_with_too_few_images_are_left_out_and_ids_stay_dense(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    (root / "p1" / "1.jpg").unlink()
    config = IngestionConfig(sources=(FolderSource(path=str(root)),), min_samples=2)
    table = pq.read_table(run(config, tmp_path / "out") / "identities.parquet")
    assert table["label"].to_pylist() == ["p0", "p2"]
    assert table["identity_id"].to_pylist() == [0, 1]


def test_a_sources_description_changes_when_it_grows_and_not_when_it_moves(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    before = describe(FolderSource(path=str(root)))
    moved = root.rename(tmp_path / "moved")
    assert describe(FolderSource(path=str(moved))) == before
    (moved / "p2" / "9.jpg").write_bytes(draw_jpeg(0, 2, 9))
    assert describe(FolderSource(path=str(moved))) != before


def test_a_folder_that_is_missing_or_holds_no_images_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        describe(FolderSource(path=str(tmp_path / "nowhere")))
    (tmp_path / "empty" / "person").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"has no sub-folder with images \(\.jpg"):
        describe(FolderSource(path=str(tmp_path / "empty")))


def test_images_of_another_size_are_scaled_when_read() -> None:
    _, encoded = cv2.imencode(".png", np.full((40, 60, 3), (10, 20, 30), np.uint8))
    image = decode(encoded.tobytes())
    assert image.shape == (112, 112, 3)
    assert image[0, 0].tolist() == [30, 20, 10]


def test_folders_on_s3_are_read_like_local_ones(s3_url: str, tmp_path: Path) -> None:
    import s3fs

    root = write_folder(tmp_path / "data")
    s3fs.S3FileSystem().put(str(root), f"{s3_url}/data", recursive=True)
    local = run(IngestionConfig(sources=(FolderSource(path=str(root)),)), tmp_path / "local")
    remote = run(IngestionConfig(sources=(FolderSource(path=f"{s3_url}/data"),)), tmp_path / "remote")
    assert digests(local) == digests(remote)


def test_a_split_that_cannot_be_verified_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    identities = SyntheticSource(identities=20, smallest=1, largest=1)
    with pytest.raises(ValueError, match=r"ingestion\.held_out holds out \d+ identities with at most 1 images"):
        run(IngestionConfig(sources=(identities,), held_out=0.3), tmp_path / "out")
