"""The evaluation task on real files of every kind: what it publishes, what it says is undefined, what it keeps."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from safetensors.torch import save_file

from gif_core.artifacts import Artifact, ArtifactStore, find_leftovers
from gif_core.artifacts.parts import parts_of
from gif_core.backbones import build_backbone
from gif_core.ingestion import ingest
from gif_core.protocols.sets import write_synthetic_bin, write_synthetic_ijb
from gif_core.protocols.sets.files import EvaluationFileError
from gif_core.readers import open_reader
from gif_core.writers import ExportInfo, Face, write_pair_file
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import StageName
from tasks.evaluation import evaluation
from tests.tinyface_files import write_tinyface

SOURCE = {"kind": "synthetic", "identities": 12, "smallest": 4, "largest": 5}
Run = Callable[..., Artifact]


def publish(store: ArtifactStore, stage: StageName, fill: Callable[[Path], object]) -> ArtifactRef:
    with store.draft(store.ref(stage, stage[0].encode().hex() * 32), {}, {}) as draft:
        fill(draft.folder)
        return store.publish(draft)


def ingest_some(folder: Path) -> None:
    config = RunConfig.model_validate({"ingestion": {"sources": [SOURCE], "held_out": 0.5}}).ingestion
    list(ingest(config, [open_reader(source) for source in config.sources], folder))


def save_untrained(folder: Path) -> None:
    model = build_backbone("iresnet_tiny", 16)
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "backbone.safetensors"
    )
    (folder / "model.json").write_text(json.dumps({"backbone": "iresnet_tiny", "embedding_dim": 16}))


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def without_flow(prefect: str) -> Iterator[None]:
    """Tasks of a task that no flow has called have nowhere to send their log."""
    from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield


@pytest.fixture
def run(tmp_path: Path, store: ArtifactStore, without_flow: None) -> Run:
    inputs: dict[StageName, ArtifactRef] = {
        "ingestion": publish(store, "ingestion", ingest_some),
        "embedding": publish(store, "embedding", lambda folder: (folder / "file").write_text("nothing")),
        "training": publish(store, "training", save_untrained),
    }

    def make(
        sets: list[dict[str, Any]], *, refresh: bool = False, embedding: dict[str, Any] | None = None, **settings: Any
    ) -> Artifact:
        given = {"sets": sets, "pairs": 40, "systems": ["raw_pixels", "model"], **settings}
        config = RunConfig.model_validate(
            {
                "store": str(tmp_path / "store"),
                "evaluation": given,
                "embedding": embedding or {},
                "execution": {"device": "cpu", "workers": 1, "encode_batch": 32},
            }
        )
        state = evaluation.fn(config, inputs, refresh=refresh)
        return store.open(state if isinstance(state, ArtifactRef) else state.data)

    return make


def sets_of(artifact: Artifact) -> dict[str, Any]:
    scores = json.loads(artifact.path("scores.json").read_text())
    assert scores["model"] == artifact.manifest.inputs["training"].key
    sets: dict[str, Any] = scores["sets"]
    return sets


def scores_of(artifact: Artifact) -> list[list[float]]:
    """The scores on the curve of each set."""
    table = pq.read_table(artifact.path("roc.parquet"))
    sets = table["set"].unique().to_pylist()
    return [table.filter(pc.equal(table["set"], name))["score"].to_pylist() for name in sets]


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", pixels)[1].tobytes())


def test_sets_of_every_kind_are_measured_side_by_side(run: Run, tmp_path: Path) -> None:
    bin_path = write_synthetic_bin(tmp_path / "bin", identities=4, pairs=20, seed=5)
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    rows = {"left": [jpeg(n) for n in range(20)], "right": [jpeg(n // 2) for n in range(20)]}
    pq.write_table(pa.table({**rows, "same": [n % 2 == 0 for n in range(20)]}), tmp_path / "mine.parquet")
    for person in ("A", "B"):
        (tmp_path / "lfw" / person).mkdir(parents=True)
        for number in range(1, 7):
            (tmp_path / "lfw" / person / f"{person}_{number:04d}.jpg").write_bytes(jpeg(number))
    lines = [f"A {n} {n + 1}\nA {n} B {n}" for n in range(1, 6)]
    (tmp_path / "pairs.txt").write_text("5 1\n" + "\n".join(lines))
    artifact = run(
        [
            {"kind": "held_out"},
            {"kind": "bin", "path": str(bin_path), "label": "AgeDB-30"},
            {"kind": "lfw", "folder": str(tmp_path / "lfw"), "pairs": str(tmp_path / "pairs.txt")},
            {"kind": "parquet", "path": str(tmp_path / "mine.parquet")},
            {"kind": "ijb", "path": str(tree), "name": "IJB-C"},
            {"kind": "synthetic_bin", "identities": 3, "pairs": 10},
            {"kind": "synthetic_ijb", "identities": 4, "norm": False},
        ]
    )
    sets = sets_of(artifact)
    pair_sets = ["held_out", "AgeDB-30", "LFW", "mine", "synthetic-LFW"]
    assert list(sets) == [*pair_sets[:4], "IJB-C", "synthetic-LFW", "synthetic-IJB-C"]
    assert [sets[name]["pairs"] for name in pair_sets] == [40, 40, 10, 20, 20]
    for name in pair_sets:
        assert list(sets[name]["systems"]) == ["raw_pixels", "model"]
        assert sets[name]["protocol"] == "pairs-1"
        assert sets[name]["flags"] == {"folds": 10}
        assert sets[name]["system_flags"] == {"raw_pixels": {"flip": False}, "model": {"flip": True}}
        assert 0 <= sets[name]["systems"]["model"]["accuracy"] <= 1
    assert sets["IJB-C"]["flags"] == {"flip": True, "detector_score": True, "norm": True}
    assert sets["synthetic-IJB-C"]["flags"]["norm"] is False
    metrics = sets["IJB-C"]["systems"]["model"]
    assert [name for name in metrics if name.startswith("tar")] == [
        f"tar_at_far_{10.0**-power:g}" for power in range(6, 0, -1)
    ]
    assert metrics["tpir_at_fpir_0.01"] + metrics["fnir_at_fpir_0.01"] == pytest.approx(1)
    assert metrics["rank_1"] <= metrics["rank_5"] <= metrics["rank_10"] == 1.0
    rows_of = pq.read_table(artifact.path("scores.parquet")).to_pylist()
    flat = {(row["set"], row["system"], row["metric"]): row["value"] for row in rows_of}
    assert flat["IJB-C", "model", "rank_1"] == metrics["rank_1"]
    flags = {(row["set"], row["system"]): json.loads(row["flags"]) for row in rows_of}
    assert flags["LFW", "model"] == {"flip": True, "folds": 10}
    assert flags["LFW", "raw_pixels"] == {"flip": False, "folds": 10}, "no mirror is added to them"
    assert flags["IJB-C", "model"] == {"flip": True, "detector_score": True, "norm": True}
    names = pq.read_table(artifact.path("metrics.parquet"))["name"].to_pylist()
    assert names == ["/".join(key) for key in flat]
    curves = pq.read_table(artifact.path("roc.parquet")).select(["set", "system"]).to_pylist()
    assert {tuple(row.values()) for row in curves} == {
        (name, system) for name in sets for system in sets[name]["systems"]
    }
    for row in pq.read_table(artifact.path("errors.parquet")).to_pylist():
        assert row["same"] == (row["distance"] >= row["threshold"]), "all of them are errors"
        assert cv2.imdecode(np.frombuffer(row["left_image"], np.uint8), cv2.IMREAD_COLOR).shape == (112, 112, 3)
    assert set(pq.read_table(artifact.path("cmc.parquet"))["set"].to_pylist()) == {"IJB-C", "synthetic-IJB-C"}


def test_an_encoder_with_the_weights_of_the_model_gets_the_scores_of_the_model(
    run: Run, store: ArtifactStore, tmp_path: Path
) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    sets = [{"kind": "held_out"}, {"kind": "ijb", "path": str(tree), "name": "IJB-C"}]
    alone = run(sets, systems=["model"])
    weights = store.open(store.ref("training", alone.manifest.inputs["training"].key)).path("backbone.safetensors")
    same = {"encoder": "backbone", "model": "iresnet_tiny", "pretrained": str(weights)}
    both = run(sets, systems=["encoder", "model"], embedding=same)
    assert both.manifest.metrics["parts_computed"] == 1, "the model's features are those of the first run"
    assert set(parts_of(both)) > set(parts_of(alone))
    for title, found in sets_of(both).items():
        assert list(found["systems"]) == ["encoder", "model"]
        assert found["systems"]["encoder"] == pytest.approx(found["systems"]["model"], abs=1e-6)
        assert found["systems"]["model"] == sets_of(alone)[title]["systems"]["model"]
    assert sets_of(both)["held_out"]["system_flags"] == {"encoder": {"flip": True}, "model": {"flip": True}}
    plain = sets_of(run(sets[:1], systems=["encoder"], embedding=same, flip=False))["held_out"]
    assert plain["system_flags"] == {"encoder": {"flip": False}}
    assert plain["systems"]["encoder"] != sets_of(both)["held_out"]["systems"]["encoder"]


def test_tinyface_is_scored_by_ranks_and_its_features_are_kept(run: Run, tmp_path: Path) -> None:
    tree = write_tinyface(tmp_path, identities=4, distractors=30)
    given = {"kind": "tinyface", "path": str(tree)}
    tiny_clip = {"model": "tiny-clip", "pretrained": "synthetic"}
    artifact = run([given], systems=["raw_pixels", "encoder", "model"], embedding=tiny_clip)
    found = sets_of(artifact)["TinyFace"]
    assert list(found["systems"]) == ["encoder", "model"]
    assert {name: found[name] for name in ("probes", "gallery", "distractors")} == {
        "probes": 8,
        "gallery": 38,
        "distractors": 30,
    }
    assert found["protocol"] == "tinyface-1"
    assert found["flags"] == {"flip": True}
    for metrics in found["systems"].values():
        assert metrics["rank_1"] <= metrics["rank_5"] <= metrics["rank_20"]
    assert artifact.manifest.metrics["TinyFace/rank_1"] == found["systems"]["model"]["rank_1"]
    assert artifact.manifest.metrics["parts_computed"] == 2
    searches = pq.read_table(artifact.path("searches.parquet"))
    assert searches["identity"].to_pylist() == [1, 1, 2, 2, 3, 3, 4, 4]
    again = run([given | {"flip": False}], systems=["encoder", "model"], embedding=tiny_clip)
    assert again.manifest.metrics["parts_computed"] == 0


def test_a_set_of_templates_is_undefined_for_systems_that_cannot_score_it(run: Run) -> None:
    found = sets_of(run([{"kind": "synthetic_ijb", "identities": 4}], systems=["raw_pixels"]))["synthetic-IJB-C"]
    assert found["systems"] == {}
    assert "evaluation.systems names neither" in found["undefined"]


def test_identification_says_why_a_model_has_none_and_can_be_left_out(run: Run) -> None:
    artifact = run([{"kind": "held_out"}])
    about = json.loads(artifact.path("identification.json").read_text())
    assert "does not read codes" in about["undefined"]
    assert about["systems"] == {}
    assert "identification" not in sets_of(artifact)
    assert "identification.json" not in run([{"kind": "held_out"}], identification=None).names()


def test_a_set_that_cannot_be_measured_says_why_and_the_others_go_on(run: Run, tmp_path: Path) -> None:
    faces = [Face(1, jpeg(number)) for number in range(24)]
    list(write_pair_file(faces, ExportInfo([""] * 2, 24), tmp_path))
    artifact = run([{"kind": "bin", "path": str(tmp_path / "pairs.bin")}, {"kind": "held_out"}])
    sets = sets_of(artifact)
    assert sets["pairs"]["undefined"].startswith("all 12 pairs are same pairs: FAR is undefined")
    assert sets["pairs"]["systems"] == {}
    assert sets["held_out"]["systems"]["model"]["accuracy"] > 0
    assert "FAR is undefined" in str(artifact.manifest.metrics["pairs/undefined"])


def test_a_set_whose_pairs_cannot_be_drawn_says_why_and_the_others_go_on(run: Run) -> None:
    sets = sets_of(
        run([{"kind": "synthetic_bin", "identities": 3, "pairs": 5}, {"kind": "held_out"}], systems=["model"])
    )
    assert sets["synthetic-LFW"]["undefined"] == "5 same and 5 different pairs are too few for 10 folds"
    assert sets["held_out"]["systems"]["model"]["accuracy"] > 0
    assert "are too few for 1000 folds" in sets_of(run([{"kind": "held_out"}], folds=1000))["held_out"]["undefined"]


def test_other_flags_reuse_the_features(run: Run, store: ArtifactStore, tmp_path: Path) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    given = {"kind": "ijb", "path": str(tree), "name": "IJB-C"}
    first = run([given])
    assert first.manifest.metrics["parts_computed"] == 1
    other = run([given | {"flip": False}, given | {"norm": False, "label": "without norm"}])
    assert other.ref.key != first.ref.key
    assert other.manifest.metrics["parts_computed"] == 0
    assert parts_of(other) == parts_of(first)
    assert len({tuple(scores) for artifact in (first, other) for scores in scores_of(artifact)}) == 3
    assert find_leftovers(store, older_than=-1e9) == [], "parts that artifacts name are kept"
    assert run([given], refresh=True).manifest.metrics["parts_computed"] == 1


def test_the_key_follows_what_a_set_holds_and_not_its_place(run: Run, tmp_path: Path) -> None:
    first = write_synthetic_ijb(tmp_path / "one", identities=4, seed=5)
    second = write_synthetic_ijb(tmp_path / "two", identities=4, seed=5)
    keys = [run([{"kind": "ijb", "path": str(tree), "name": "IJB-C"}]).ref.key for tree in (first, second)]
    assert keys[0] == keys[1]
    (second / "loose_crop/1.jpg").write_bytes((second / "loose_crop/2.jpg").read_bytes())
    assert run([{"kind": "ijb", "path": str(second), "name": "IJB-C"}]).ref.key != keys[0]


def test_a_tree_without_galleries_has_its_verification(run: Run, tmp_path: Path) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    for path in (tree / "meta").glob("*1N*"):
        path.unlink()
    found = sets_of(run([{"kind": "ijb", "path": str(tree), "name": "IJB-C"}]))["IJB-C"]
    assert found["undefined"] == "1:N: the set has no gallery and probe files"
    assert "tar_at_far_0.0001" in found["systems"]["model"]


def test_a_gallery_in_which_no_probe_is_enrolled_is_named(run: Run, tmp_path: Path) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    probes = tree / "meta/ijbc_1N_probe_mixed.csv"
    head, *rows = probes.read_text().splitlines(keepends=True)
    probes.write_text(head + "".join(row for row in rows if row.endswith((",1\n", ",3\n"))))
    found = sets_of(run([{"kind": "ijb", "path": str(tree), "name": "IJB-C"}]))["IJB-C"]
    assert found["undefined"] == "1:N: no probe has its subject in gallery G2: TPIR and ranks are undefined"


def test_an_image_of_a_tree_that_is_missing_is_told_before_any_is_embedded(run: Run, tmp_path: Path) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    (tree / "loose_crop/3.jpg").unlink()
    words = r"face_tid_mid\.txt, line 3, column 1 \(image\): there is no image loose_crop/3\.jpg"
    with pytest.raises(EvaluationFileError, match=words):
        run([{"kind": "ijb", "path": str(tree), "name": "IJB-C"}])


def test_a_broken_tree_stops_the_stage_with_file_line_and_column(run: Run, tmp_path: Path) -> None:
    tree = write_synthetic_ijb(tmp_path / "ijb", identities=4, seed=5)
    path = tree / "meta/ijbc_template_pair_label.txt"
    path.write_text(path.read_text().replace(" 1\n", " yes\n", 1))
    with pytest.raises(EvaluationFileError, match=r"pair_label\.txt, line 1, column 3 \(same\)"):
        run([{"kind": "ijb", "path": str(tree), "name": "IJB-C"}])
