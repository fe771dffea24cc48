"""Separation of centroids and code vectors after training, as in the paper's Figure 4."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.training import MeasuredCentroids, measure_centroids
from gif_core.training import centroids as module
from schemas.files import CODE_VECTORS_FILE, HEAD_FILE

MakeRun = Callable[..., Any]


def distances(rows: NDArray[np.float32]) -> list[float]:
    unit = rows.astype(np.float64) / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = 1 - (unit @ unit.T)[np.triu_indices(len(rows), 1)]
    return [pairs.min(), pairs.mean(), pairs.max()]


def measured(run: Any) -> dict[str, MeasuredCentroids]:
    return {row.name: row for row in measure_centroids(run.inputs["separation"], run.inputs["training"])}


def scores(row: MeasuredCentroids) -> list[float]:
    return [row.scores.min, row.scores.mean, row.scores.max]


def test_rows_that_learned_are_measured_and_where_the_map_puts_them(small_run: MakeRun, tmp_path: Path) -> None:
    run = small_run(tmp_path)
    found, training = measured(run), run.inputs["training"]
    names = [
        "Identity vectors",
        "Code vectors H",
        "H after training",
        "H after training, where the learned map puts it",
    ]
    assert list(found) == names
    assert scores(found["Identity vectors"]) == [0.001, 0.1, 0.4], "as separation measured them"
    rows = load_file(training.path(CODE_VECTORS_FILE))["code_vectors"]
    assert scores(found["H after training"]) == pytest.approx(distances(rows), abs=1e-5)
    head = load_file(training.path(HEAD_FILE))
    mapped = rows + np.maximum(rows @ head["map_in_DW"], 0) @ head["map_out_WD"]
    assert scores(found[names[-1]]) == pytest.approx(distances(mapped), abs=1e-5)
    assert found[names[-1]].vectors == len(rows)


def test_centroids_of_a_classifier_are_measured_whatever_their_length(small_run: MakeRun, tmp_path: Path) -> None:
    run = small_run(tmp_path, head="partial_fc")
    found = measured(run)
    rows = load_file(run.inputs["training"].path(HEAD_FILE))["weight_MD"]
    assert scores(found["Centroids of partial_fc"]) == pytest.approx(distances(rows), abs=1e-5)
    assert "H after training" not in found


def publish_head(folder: Path, rows: NDArray[np.float32]) -> Artifact:
    store = ArtifactStore(str(folder))
    with store.draft(store.ref("training", "1" * 64), {"head": "arcface"}, {}) as draft:
        save_file({"weight_MD": rows}, draft.folder / HEAD_FILE)
        return store.open(store.publish(draft))


def test_two_identities_that_have_collapsed_have_distance_zero(small_run: MakeRun, tmp_path: Path) -> None:
    rows = np.eye(5, 16, dtype=np.float32)
    rows[4] = 7 * rows[0]
    collapsed = publish_head(tmp_path / "collapsed", rows)
    (row,) = [
        each
        for each in measure_centroids(small_run(tmp_path / "run").inputs["separation"], collapsed)
        if each.name == "Centroids of arcface"
    ]
    assert row.scores.min == pytest.approx(0, abs=1e-6)
    assert row.scores.max == pytest.approx(1)


def test_of_many_rows_a_fixed_sample_is_measured(
    small_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    many = publish_head(tmp_path / "many", rows)
    separation = small_run(tmp_path / "run").inputs["separation"]
    monkeypatch.setattr(module, "SCORED_ROWS", 10)
    first, second = (measure_centroids(separation, many)[-1] for _ in range(2))
    assert first == second
    assert first.vectors == 50
    assert first.scores.min > distances(rows)[0]
