"""The separation task: its files and metrics, carried on after a failure, made anew on demand, shared by processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from gif_core.artifacts import Artifact, ArtifactStore
from gif_core.artifacts.checkpoints import STATE
from gif_core.separation import stage as module
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.run import RunConfig
from tasks.separation import separation

COUNT, DIMENSION = 120, 16
Run = Callable[..., Artifact]


@pytest.fixture
def vectors() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    rows = 2 + rng.normal(size=(COUNT, DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def embed(folder: Path, vectors: NDArray[np.float32]) -> ArtifactRef:
    """Publish these vectors, in place of others if there are any."""
    store = ArtifactStore(str(folder / "store"))
    with store.draft(store.ref("embedding", "e" * 64), {}, {}) as draft:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
        table = pa.table({"identity_id": np.arange(COUNT), "vector": column})
        pq.write_table(table, draft.folder / "vectors.parquet", row_group_size=50)
        return store.publish(draft, replace=True)


@pytest.fixture
def embedding(tmp_path: Path, vectors: NDArray[np.float32]) -> ArtifactRef:
    return embed(tmp_path, vectors)


@pytest.fixture
def run(tmp_path: Path, embedding: ArtifactRef, prefect: str) -> Run:
    store = ArtifactStore(str(tmp_path / "store"))

    def make(refresh: bool = False, dimension: int | None = None, **execution: Any) -> Artifact:
        given = {"epochs": 5, "batch_size": 32, "target_gap": None, "dimension": dimension}
        config = RunConfig.model_validate(
            {"store": str(tmp_path / "store"), "separation": given, "execution": {"device": "cpu", **execution}}
        )
        return store.open(separation.fn(config, {"embedding": embedding}, refresh=refresh))

    return make


def code_vectors(artifact: Artifact) -> NDArray[np.float32]:
    found: NDArray[np.float32] = load_file(artifact.path("code_vectors.safetensors"))["code_vectors"]
    return found


def test_it_publishes_vectors_both_curves_and_distances(run: Run, vectors: NDArray[np.float32]) -> None:
    artifact = run()
    assert artifact.names() == ["code_vectors.safetensors", "curve.parquet", "distances.parquet"]
    after = code_vectors(artifact)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, atol=1e-5)
    curve = pq.read_table(artifact.path("curve.parquet"))
    assert curve.column_names == ["epoch", "loss", "gap", "mean_cosine", "neighbours_kept", "spearman"]
    assert curve["epoch"].to_pylist() == [0, 1, 2, 3, 4, 5]
    distances = pq.read_table(artifact.path("distances.parquet"))
    assert distances.column_names == ["distance", "before", "after"]
    for name, rows in (("before", vectors), ("after", after)):
        pairs = 1 - (rows @ rows.T)[np.triu_indices(COUNT, 1)]
        expected, edges = np.histogram(pairs, bins=200, range=(0, 2))
        counts = distances[name].to_numpy()
        assert counts.sum() == COUNT * (COUNT - 1) / 2
        assert np.abs(counts - expected).sum() <= 4, "rounding may put a pair in the next bin"
        np.testing.assert_allclose(distances["distance"].to_numpy(), edges[:-1])
        assert artifact.manifest.metrics["min_distance" + "_before" * (name == "before")] == pytest.approx(
            pairs.min(), abs=1e-5
        )
    assert artifact.manifest.metrics["scored_vectors"] == COUNT
    assert artifact.manifest.metrics["neighbours_kept"] == curve["neighbours_kept"].to_pylist()[-1]


def test_a_failed_run_is_carried_on_and_a_refreshed_one_is_made_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = run()
    expected = code_vectors(undisturbed)
    ArtifactStore(str(tmp_path / "store")).remove(undisturbed.ref)
    real_job, real_measure, epochs = module.SeparationJob, module.measure_distances, []
    monkeypatch.setattr(module, "SeparationJob", lambda **given: real_job(**given | {"checkpoint_seconds": 0}))
    monkeypatch.setattr(module, "measure_distances", lambda _: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):
        run()
    assert len(list((tmp_path / "store").rglob(STATE))) == 1
    monkeypatch.setattr(module, "measure_distances", real_measure)
    from gif_core.separation import descent as core

    real_epoch = core._run_epoch
    monkeypatch.setattr(core, "_run_epoch", lambda *a, **k: (epochs.append(k["epoch"]), real_epoch(*a, **k)))
    assert np.array_equal(code_vectors(run()), expected)
    assert epochs == []
    assert np.array_equal(code_vectors(run(refresh=True)), expected)
    assert epochs == [1, 2, 3, 4, 5]
    assert not list((tmp_path / "store").rglob(STATE))


def test_what_a_failed_run_made_of_other_vectors_is_not_carried_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: NDArray[np.float32]
) -> None:
    real_job, real_measure = module.SeparationJob, module.measure_distances
    monkeypatch.setattr(module, "SeparationJob", lambda **given: real_job(**given | {"checkpoint_seconds": 0}))
    monkeypatch.setattr(module, "measure_distances", lambda _: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):
        run()
    monkeypatch.setattr(module, "measure_distances", real_measure)
    embed(tmp_path, vectors[::-1].copy())
    carried_on = code_vectors(run())
    assert np.array_equal(carried_on, code_vectors(run(refresh=True)))


def test_code_vectors_have_as_many_dimensions_as_asked_for(run: Run) -> None:
    small = run(dimension=6)
    assert code_vectors(small).shape == (COUNT, 6)
    np.testing.assert_allclose(np.linalg.norm(code_vectors(small), axis=1), 1, atol=1e-5)
    assert small.ref.key != run().ref.key


def test_more_dimensions_than_the_vectors_have_are_refused(run: Run) -> None:
    with pytest.raises(GifError, match=r"separation\.dimension=17 is more than the 16 dimensions"):
        run(dimension=17)


def test_without_a_dimension_keys_are_those_of_before_there_was_the_setting() -> None:
    assert "dimension" not in RunConfig().settings("separation")
    given = RunConfig.model_validate({"separation": {"dimension": 64}})
    assert given.settings("separation")["dimension"] == 64


@pytest.mark.slow
def test_two_processes_publish_what_one_does(run: Run) -> None:
    alone = run()
    shared = run(refresh=True, processes=2)
    assert alone.ref == shared.ref, "how it is executed is no part of the key"
    np.testing.assert_allclose(code_vectors(shared), code_vectors(alone), atol=2e-5)
