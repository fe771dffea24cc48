"""`gif separation` on runs that are written here."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from gif_core.artifacts import ArtifactStore, begin_run, save_run
from schemas.artifacts import StageRecord
from schemas.files import CODE_VECTORS_FILE, HEAD_FILE
from schemas.run import RunConfig
from schemas.stages import StageName

Gif = Callable[..., str]
Matrix = NDArray[np.float32]


def write_run(address: str, digit: str, centroids: Matrix | None) -> str:
    """A run with code vectors, and with the centroids of a classifier if they are given."""
    store, keys = ArtifactStore(address), dict[StageName, str]()
    with store.draft(store.ref("separation", digit * 64), {}, {}) as draft:
        save_file({"code_vectors": np.eye(4, dtype=np.float32)}, draft.folder / CODE_VECTORS_FILE)
        draft.metrics |= {f"{name}_distance": 1.0 for name in ("min", "mean", "max")}
        separated = store.open(store.publish(draft))
        keys["separation"] = separated.ref.key
    if centroids is not None:
        sources = {"separation": separated.made_from}
        with store.draft(store.ref("training", digit * 64), {"head": "arcface"}, sources) as draft:
            save_file({"weight_MD": centroids}, draft.folder / HEAD_FILE)
            keys["training"] = store.publish(draft).key
    record = begin_run(store, RunConfig(store=address))
    stages = {stage: StageRecord(key=key, action="computed", seconds=1) for stage, key in keys.items()}
    save_run(store, record, state="completed", stages=stages)
    return record.run_id


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GIF_STORE", str(tmp_path))
    return str(tmp_path)


def test_runs_and_models_are_shown_one_below_the_other(address: str, run_gif: Gif) -> None:
    corners = np.array([[1, 0, 0, 0], [-1, 0, 0, 0], [0, 1, 0, 0]], np.float32)
    run = write_run(address, "1", corners)
    write_run(address, "2", 2 * corners[:2])
    shown = run_gif("separation", run, f"training/{'2' * 64}")
    lines = [" ".join(line.replace("│", " ").split()) for line in shown.splitlines()]
    assert f"{run} Code vectors H 4 1.0000 1.0000 1.0000" in lines
    assert f"{run} Centroids of arcface 3 1.0000 1.3333 2.0000" in lines
    assert any(line.endswith("Centroids of arcface 2 2.0000 2.0000 2.0000") for line in lines)


def test_a_run_without_a_model_shows_what_separation_made(address: str, run_gif: Gif) -> None:
    shown = run_gif("separation", write_run(address, "1", None))
    assert "Code vectors H" in shown
    assert "Centroids" not in shown


def test_an_unknown_run_gets_a_sentence(address: str, run_gif: Gif) -> None:
    assert "there is no model 'nothing'" in run_gif("separation", "nothing", code=2)
