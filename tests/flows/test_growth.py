from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from flows.pipeline import gif
from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.images import Faces
from gif_core.planning import plan_stages
from gif_core.readers import FolderReader
from gif_core.readers.base import Content
from gif_core.synthetic import draw_jpeg
from schemas.loading import load_config
from schemas.run import RunConfig

pytestmark = pytest.mark.usefixtures("prefect")


def draw(root: Path, person: int, samples: range) -> None:
    (root / f"p{person:02d}").mkdir(parents=True, exist_ok=True)
    for sample in samples:
        (root / f"p{person:02d}" / f"{sample}.jpg").write_bytes(draw_jpeg(0, person, sample))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for person in range(10):
        draw(tmp_path / "data", person, range(4))
    return tmp_path / "data"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each image of a folder is read."""
    counts: Counter[str] = Counter()
    original = FolderReader.read

    def counting(self: FolderReader, records: NDArray[np.int64]) -> Iterator[Content]:
        counts.update(self.names(records))
        return original(self, records)

    monkeypatch.setattr(FolderReader, "read", counting)
    return counts


def config_of(root: Path, store: str, **settings: Any) -> RunConfig:
    source = {"kind": "folder", "path": str(root)}
    table = {"sources": [source], "held_out": 0.4, "max_bad_fraction": 1, **settings}
    return load_config({"store": store, "ingestion": table})


def run(config: RunConfig) -> Artifact:
    store = ArtifactStore(config.store)
    return store.open(store.ref("ingestion", gif(config, only="ingestion").stages["ingestion"].key))


def identities(artifact: Artifact) -> dict[str, tuple[str, int, int]]:
    rows = {}
    for split in ("identities", "held_out"):
        for row in pq.read_table(artifact.path(f"{split}.parquet")).to_pylist():
            rows[row["label"]] = (split, row["identity_id"], row["num_samples"])
    return rows


def contents(artifact: Artifact) -> dict[str, tuple[str, int, bytes]]:
    """Split, identity id and bytes of every image by its name."""
    found = {}
    for split in ("identities", "held_out"):
        faces = Faces([artifact.path(name) for name in artifact.names(f"{split}-")])
        for row in range(len(faces)):
            found[faces.name(row)] = (split, int(faces.labels_N[row]), bytes(faces.content(row)))
    return found


@pytest.mark.parametrize("place", ["local", "s3"])
def test_only_what_is_new_is_read_and_identities_keep_their_ids(
    place: str, root: Path, tmp_path: Path, read: Counter[str], request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "store") if place == "local" else request.getfixturevalue("s3_url")
    before = run(config_of(root, store))
    read.clear()
    draw(root, 2, range(4, 6))
    draw(root, 0, range(4, 5))
    for person in (10, 11, 12):
        draw(root, person, range(3))
    (root / "a00").mkdir()
    (root / "a00" / "0.jpg").write_bytes(draw_jpeg(0, 50, 0))
    after = run(config_of(root, store))

    assert set(read) == {"p02/4.jpg", "p02/5.jpg", "p00/4.jpg", "a00/0.jpg"} | {
        f"p{person}/{sample}.jpg" for person in (10, 11, 12) for sample in range(3)
    }
    old, new = identities(before), identities(after)
    assert {label: row[:2] for label, row in old.items()}.items() <= {k: row[:2] for k, row in new.items()}.items()
    assert new["p02"][2] == 6
    assert len(new) == 14
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.jpg")}
    assert {name: image for name, (_, _, image) in contents(after).items()} == files
    for name, (split, identity_id, _) in contents(after).items():
        assert new[name.partition("/")[0]][:2] == (split, identity_id)
    for split in ("identities", "held_out"):
        ids = sorted(row[1] for row in new.values() if row[0] == split)
        assert ids == list(range(len(ids)))
    assert all(check.sha256 for check in after.manifest.files)


def test_the_same_sources_keep_the_same_key_and_a_third_step_grows_on(root: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    first = run(config_of(root, store))
    draw(root, 20, range(3))
    second = run(config_of(root, store))
    assert run(config_of(root, store)).ref == second.ref
    assert second.manifest.settings["grown_from"] == first.ref.key
    draw(root, 21, range(3))
    third = run(config_of(root, store))
    assert third.manifest.settings["grown_from"] == second.ref.key
    assert plan_stages(ArtifactStore(store), config_of(root, store))["ingestion"].action == "reuse"


def test_faces_that_grew_stay_whole_when_those_they_grew_from_are_deleted(root: Path, tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    first = run(config_of(root, str(tmp_path / "store")))
    draw(root, 20, range(3))
    second = run(config_of(root, str(tmp_path / "store")))
    before = contents(second)
    store.remove(first.ref)
    assert contents(second) == before
    assert run(config_of(root, str(tmp_path / "store"))).ref == second.ref


def test_a_source_that_changed_or_shrank_is_read_anew(root: Path, tmp_path: Path, read: Counter[str]) -> None:
    store = str(tmp_path / "store")
    run(config_of(root, store))
    (root / "p03" / "1.jpg").write_bytes(draw_jpeg(0, 3, 99))
    read.clear()
    assert run(config_of(root, store)).manifest.settings["grown_from"] is None
    assert len(read) == 40
    (root / "p03" / "1.jpg").unlink()
    assert run(config_of(root, store)).manifest.settings["grown_from"] is None


def test_growing_can_be_turned_off_and_other_settings_do_not_grow(root: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    run(config_of(root, store))
    draw(root, 20, range(3))
    assert run(config_of(root, store, incremental=False)).manifest.settings["grown_from"] is None
    draw(root, 21, range(3))
    assert run(config_of(root, store, min_samples=2)).manifest.settings["grown_from"] is None


def test_identities_who_had_too_few_images_come_in_when_more_arrive(
    root: Path, tmp_path: Path, read: Counter[str]
) -> None:
    store = str(tmp_path / "store")
    draw(root, 20, range(1))
    (root / "p04" / "9.jpg").write_bytes(b"not an image")
    (root / "p21").mkdir()
    (root / "p21" / "0.jpg").write_bytes(b"not an image")
    (root / "p21" / "1.jpg").write_bytes(draw_jpeg(0, 21, 1))
    before = run(config_of(root, store, min_samples=2))
    assert {"p20", "p21"}.isdisjoint(identities(before))
    read.clear()
    draw(root, 20, range(1, 3))
    draw(root, 21, range(2, 3))
    after = run(config_of(root, store, min_samples=2))
    assert sorted(read) == [f"p20/{n}.jpg" for n in range(3)] + [f"p21/{n}.jpg" for n in range(3)]
    assert identities(after)["p20"][2] == 3
    assert identities(after)["p21"][2] == 2
    rows = sorted(row["record"] for row in pq.read_table(after.path("quarantine.parquet")).to_pylist())
    assert rows == ["p04/9.jpg", "p21/0.jpg"]


def test_a_source_added_at_the_end_is_growth_too(root: Path, tmp_path: Path, read: Counter[str]) -> None:
    store = str(tmp_path / "store")
    before = run(config_of(root, store))
    read.clear()
    for person in range(3):
        draw(tmp_path / "more", person + 30, range(2))
    sources = [{"kind": "folder", "path": str(path)} for path in (root, tmp_path / "more")]
    after = run(config_of(root, store, sources=sources))
    assert after.manifest.settings["grown_from"] == before.ref.key
    assert len(read) == 6
    assert len(identities(after)) == 13


def test_synthetic_identities_can_grow_in_number(tmp_path: Path) -> None:
    def settings(number: int) -> RunConfig:
        source = {"kind": "synthetic", "identities": number, "smallest": 2, "largest": 3}
        return config_of(tmp_path, str(tmp_path / "store"), sources=[source], held_out=0)

    before, after = run(settings(12)), run(settings(18))
    assert after.manifest.settings["grown_from"] == before.ref.key
    assert identities(before).items() <= identities(after).items()
    assert len(identities(after)) == 18
