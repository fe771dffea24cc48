"""`gif faces audit` from drawn faces with wrong labels to faces without them, with the real ingestion and encoder."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.artifacts import Artifact, ArtifactStore, begin_run, save_run
from gif_core.auditing import AuditedFaces
from gif_core.ingestion import stage as ingestion
from gif_core.planning import identify_stage
from gif_core.synthetic import draw_jpeg
from schemas.artifacts import StageRecord
from schemas.loading import load_config
from schemas.run import RunConfig
from tests.recognition_store import save_model

Gif = Callable[..., str]
PERSONS, IMAGES = 24, 8
FLIPPED = {3: "p5", 20: "p9", 77: "p1", 130: "p2"}
"""Rows of images with the label of another identity."""
MIXED = ("p6", "p7")
"""The second person has the label of the first."""


def labels() -> list[str]:
    right = [f"p{row // IMAGES}" for row in range(PERSONS * IMAGES)]
    return [FLIPPED.get(row, MIXED[0] if label == MIXED[1] else label) for row, label in enumerate(right)]


def ingest(config: RunConfig) -> Artifact:
    """Run the stage."""
    store = ArtifactStore(config.store)
    identity = identify_stage(store, config, "ingestion", {})
    with store.draft(identity.ref, identity.settings, identity.made_from) as draft:
        list(ingestion.run(config, {}, draft))
        store.publish(draft)
    return store.open(identity.ref)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run on drawn faces with wrong labels."""
    folder = tmp_path_factory.mktemp("audit")
    images = [draw_jpeg(4, row // IMAGES, row % IMAGES) for row in range(PERSONS * IMAGES)]
    pq.write_table(pa.table({"image": images, "label": labels()}), folder / "faces.parquet")
    return load_config(
        {
            "preset": "demo",
            "store": str(folder / "store"),
            "execution": {"device": "cpu", "workers": 1},
            "ingestion": {"sources": [{"kind": "parquet", "path": str(folder / "faces.parquet")}], "held_out": 0.2},
        }
    )


@pytest.fixture(scope="module")
def artifact(config: RunConfig) -> Artifact:
    """Its faces, and the record of the run."""
    made, store = ingest(config), ArtifactStore(config.store)
    stages = {"ingestion": StageRecord(key=made.ref.key, action="computed", seconds=1)}
    save_run(store, begin_run(store, config), state="completed", stages=stages)
    return made


@pytest.fixture
def gif(config: RunConfig, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIF_STORE", config.store)
    return run_gif


def read_list(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        next(file)
        return list(csv.DictReader(file))


def label_of_rows(artifact: Artifact) -> dict[int, str]:
    """The label of each row of the source."""
    given = AuditedFaces.open(artifact)
    names = [given.faces.name(row) for row in range(len(given.faces))]
    return {
        int(name.rpartition("#")[2]): given.labels[person]
        for name, person in zip(names, given.person_N.tolist(), strict=True)
    }


def test_an_encoder_that_knows_identities_poorly_finds_most_wrong_labels_and_ingestion_applies_its_list(
    gif: Gif, config: RunConfig, artifact: Artifact, tmp_path: Path
) -> None:
    printed = gif("faces", "audit", "--output", "audit", "--encoder")
    assert "relabel.csv" in printed
    rows = read_list(tmp_path / "audit" / "relabel.csv")
    found = {int(row["record"].rpartition("#")[2]): row for row in rows}
    flipped = set(FLIPPED) & set(found)
    assert len(flipped) >= len(FLIPPED) - 1
    assert len(found) <= PERSONS * IMAGES // 6
    second = [found[row]["new_label"] for row in range(7 * IMAGES, 8 * IMAGES) if row in found]
    assert len(second) >= IMAGES - 2
    assert "p6~2" in second

    cleaned = ingest(
        config.model_validate(
            config.model_dump()
            | {
                "ingestion": config.ingestion.model_dump() | {"relabel": str(tmp_path / "audit" / "relabel.csv")},
            }
        )
    )
    assert cleaned.ref.key != artifact.ref.key
    metrics = cleaned.manifest.metrics
    assert metrics["moved"] == sum(bool(row["new_label"]) for row in rows)
    assert metrics["dropped"] == sum(not row["new_label"] for row in rows) == metrics["quarantine"]
    after = label_of_rows(cleaned)
    assert len(after) == PERSONS * IMAGES - int(metrics["dropped"])
    assert all(after.get(row) != FLIPPED[row] for row in flipped)
    assert {"p6", "p6~2"} <= set(after.values())


def test_the_page_needs_no_network_and_the_summary_counts_what_the_list_has(gif: Gif, tmp_path: Path) -> None:
    gif("faces", "audit", "--output", "audit", "--pictures", "3", "--encoder")
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert "One identity, two persons" in page
    assert "data:image/jpeg;base64," in page
    assert "http" not in page.replace("http-equiv", "")
    summary = json.loads((tmp_path / "audit" / "audit.json").read_text())
    rows = read_list(tmp_path / "audit" / "relabel.csv")
    assert summary["moved"] + summary["dropped"] == len(rows)
    assert summary["images"] == PERSONS * IMAGES
    assert summary["network"] == "encoder tiny-clip"
    assert sorted(path.name for path in (tmp_path / "audit").iterdir()) == ["audit.html", "audit.json", "relabel.csv"]


def test_a_trained_model_audits_too(gif: Gif, config: RunConfig, tmp_path: Path) -> None:
    store = ArtifactStore(config.store)
    with store.draft(store.ref("training", "7" * 64), {}, {}) as draft:
        save_model(draft.folder)
        store.publish(draft)
    gif("faces", "audit", "--output", "audit", "--model", "training/7777")
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["network"] == "model training/777777777777"


def test_the_model_of_the_run_audits_its_faces_unless_the_encoder_is_asked_for(
    gif: Gif, config: RunConfig, artifact: Artifact, tmp_path: Path
) -> None:
    store = ArtifactStore(config.store)
    with store.draft(store.ref("training", "8" * 64), {}, {}) as draft:
        save_model(draft.folder)
        store.publish(draft)
    keys = {"ingestion": artifact.ref.key, "training": "8" * 64}
    stages = {stage: StageRecord(key=key, action="computed", seconds=1) for stage, key in keys.items()}
    run = begin_run(store, config)
    save_run(store, run, state="completed", stages=stages)
    for options, network in (([], "model training/888888888888"), (["--encoder"], "encoder tiny-clip")):
        gif("faces", "audit", "--output", "audit", "--run", run.run_id, *options)
        assert json.loads((tmp_path / "audit" / "audit.json").read_text())["network"] == network


def test_a_model_and_the_encoder_at_once_are_refused(gif: Gif) -> None:
    assert "give --model or --encoder, not both" in gif("faces", "audit", "--model", "x", "--encoder", code=2)


def test_faces_of_both_splits_are_audited(artifact: Artifact) -> None:
    given = AuditedFaces.open(artifact)
    assert len(given.person_N) == PERSONS * IMAGES
    assert np.array_equal(np.unique(given.person_N), np.arange(len(given.labels)))
    assert sorted(given.labels) == sorted(set(labels()))
