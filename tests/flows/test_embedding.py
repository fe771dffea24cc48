"""Embedding in parts: what is stored is not done again, and the engine makes no difference."""

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from flows.pipeline import gif
from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.artifacts.parts import parts_of
from gif_core.backbones import WeightsError
from gif_core.embedding import Part, vectors_of
from gif_core.embedding.part_jobs import EmbedPart
from schemas.loading import load_config
from schemas.run import RunConfig

Start = Callable[..., BaseProcess]
RUNNERS = {"processes": "ProcessPoolTaskRunner", "dask": "DaskTaskRunner", "ray": "RayTaskRunner"}


def settings(folder: Path, *, identities: int = 100, shard_bytes: int = 2**16) -> Path:
    """Some forty shards of a few identities each, every one a part."""
    source = {"kind": "synthetic", "identities": identities, "smallest": 5, "largest": 8}
    table = {
        "preset": "demo",
        "store": str(folder / "store"),
        "ingestion": {"sources": [source], "held_out": 0.0, "shard_bytes": shard_bytes},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(table))
    return folder / "run.yaml"


def finish(process: BaseProcess) -> None:
    process.join(300)
    assert process.exitcode == 0


def part_files(folder: Path) -> dict[str, int]:
    """Name and time of every stored part."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "store/parts/embedding").glob("[!.]*")}


def published(store: ArtifactStore) -> Artifact:
    (ref,) = store.refs("embedding")
    return store.open(ref)


@pytest.fixture
def faces(tmp_path: Path, prefect: str) -> Path:
    """The settings of a run whose faces are stored."""
    path = settings(tmp_path)
    gif(str(path), only="ingestion")
    return path


def test_killed_half_way_the_second_run_computes_only_the_missing_parts(
    faces: Path, tmp_path: Path, start_gif: Start
) -> None:
    first = start_gif("run", "--config", str(faces), "--only", "embedding")
    end = time.monotonic() + 120
    while len(part_files(tmp_path)) < 5:
        assert first.is_alive()
        assert time.monotonic() < end
        time.sleep(0.001)
    first.kill()
    first.join()
    store = ArtifactStore(str(tmp_path / "store"))
    before = part_files(tmp_path)
    assert store.refs("embedding") == []
    finish(start_gif("run", "--config", str(faces), "--only", "embedding"))
    after = part_files(tmp_path)
    ingested = store.open(store.refs("ingestion")[0])
    assert len(after) == len(ingested.names("identities-")) > len(before) + 5
    assert {name: after[name] for name in before} == before, "a part was computed twice"
    interrupted = published(store).stored("vectors.parquet").sha256

    store.remove(published(store).ref)
    store.storage.remove("parts")
    gif(str(faces), only="embedding")
    assert published(store).stored("vectors.parquet").sha256 == interrupted


def grown(folder: Path, identities: int) -> RunConfig:
    source = {"kind": "synthetic", "identities": identities, "smallest": 1, "largest": 1}
    table = {"sources": [source], "held_out": 0.0, "shard_bytes": 2**20}
    return load_config({"preset": "demo", "store": str(folder / "store"), "ingestion": table})


@pytest.mark.usefixtures("prefect")
def test_a_hundred_identities_more_embed_only_the_shards_they_touch(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    found = []
    for identities in (2000, 2100):
        config = grown(tmp_path, identities)
        faces = store.open(store.ref("ingestion", gif(config, only="ingestion").stages["ingestion"].key))
        vectors = store.open(store.ref("embedding", gif(config, only="embedding").stages["embedding"].key))
        found.append((faces, vectors, part_files(tmp_path)))
    (old_faces, old, before), (new_faces, new, after) = found
    shards = len(old_faces.names("identities-")), len(new_faces.names("identities-"))
    assert (shards[0], shards[1]) == (len(before), len(after))
    assert shards[0] >= 5
    assert shards[1] - shards[0] == 1
    assert {name: after[name] for name in before} == before
    assert parts_of(new)[: len(before)] == parts_of(old)
    first, second = (vectors_of(pq.read_table(each.path("vectors.parquet"))) for each in (old, new))
    assert (second[:2000] == first).all()
    assert len(second) == 2100


@pytest.mark.parametrize(
    "runner", ["processes", pytest.param("dask", marks=pytest.mark.slow), pytest.param("ray", marks=pytest.mark.slow)]
)
def test_every_engine_gives_the_key_and_the_bytes_of_threads(
    runner: str, tmp_path: Path, prefect: str, start_gif: Start
) -> None:
    path = settings(tmp_path, identities=30, shard_bytes=2**18)
    store = ArtifactStore(str(tmp_path / "store"))
    gif(str(path), only="ingestion")
    gif(str(path), only="embedding")
    threads = published(store).manifest
    assert len(parts_of(published(store))) > 2
    store.remove(store.refs("embedding")[0])
    store.storage.remove("parts")
    finish(start_gif("run", "--config", str(path), "--only", "embedding", "--set", f"execution.runner={runner}"))
    other = published(store).manifest
    assert (threads.metrics["runner"], other.metrics["runner"]) == ("ThreadPoolTaskRunner", RUNNERS[runner])
    assert other.key == threads.key
    assert [(file.name, file.sha256) for file in other.files] == [(file.name, file.sha256) for file in threads.files]


def test_a_refresh_computes_every_part_again(faces: Path, tmp_path: Path) -> None:
    gif(str(faces), only="embedding")
    before = part_files(tmp_path)
    artifact = published(ArtifactStore(str(tmp_path / "store")))
    gif(str(faces), only="embedding", refresh=["embedding"])
    after = part_files(tmp_path)
    assert after.keys() == before.keys()
    assert all(after[name] > before[name] for name in before)
    again = published(ArtifactStore(str(tmp_path / "store")))
    assert again.manifest.metrics["parts_computed"] == len(before)
    assert again.stored("vectors.parquet").sha256 == artifact.stored("vectors.parquet").sha256


def test_weights_that_changed_since_the_run_began_are_refused(faces: Path, tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    part, config = Part("0" * 64, "identities-00000.arrow", 0, 1), load_config(str(faces)).embedding
    job = EmbedPart(
        store=store.storage.url,
        key=part.key,
        faces=store.refs("ingestion")[0],
        part=part,
        config=config,
        weights="sha256:of another file",
        device="cpu",
        batch_size=8,
    )
    with pytest.raises(WeightsError, match="has changed since the run began"):
        job.compute(threads=1)


def test_a_part_that_was_damaged_is_told_and_made_anew(faces: Path, tmp_path: Path) -> None:
    gif(str(faces), only="embedding")
    store = ArtifactStore(str(tmp_path / "store"))
    expected = published(store).stored("vectors.parquet").sha256
    name = parts_of(published(store))[3]
    (tmp_path / "store/parts/embedding" / name).write_bytes(b"nonsense")
    store.remove(published(store).ref)
    with pytest.raises(Exception, match=f"the part {name} was damaged and is removed: run again"):
        gif(str(faces), only="embedding")
    gif(str(faces), only="embedding")
    assert published(store).stored("vectors.parquet").sha256 == expected


def test_the_likeliest_wrong_labels_are_a_table(faces: Path, tmp_path: Path) -> None:
    gif(str(faces), only="embedding")
    artifact = published(ArtifactStore(str(tmp_path / "store")))
    table = pq.read_table(artifact.path("least_cohesive.parquet"))
    assert table.column_names == ["identity_id", "label", "num_samples", "cohesion"]
    assert len(table) == 100
    cohesion = table["cohesion"].to_pylist()
    assert cohesion == sorted(cohesion)
    assert cohesion[0] == pytest.approx(artifact.manifest.metrics["least_cohesion"])
    assert all(label == f"person-{identity:06d}" for identity, label in zip(
        table["identity_id"].to_pylist(), table["label"].to_pylist(), strict=True
    ))  # fmt: skip


def test_wrong_weights_are_told_before_anything_is_computed(faces: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"no weights")
    config = load_config(str(faces), [f"embedding.pretrained={tmp_path / 'weights.pt'}"])
    with pytest.raises(Exception, match=r"weights\.pt cannot be read as weights"):
        gif(config, only="embedding")
    assert part_files(tmp_path) == {}
