"""Retraining on a real Prefect server: a folder that grows, a champion and its challengers."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.exceptions import ParameterTypeError
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.pipeline import gif
from flows.retrain import retrain
from gif_core.artifacts import Artifact, ArtifactStore, check_artifacts, list_runs, read_history, read_tag
from gif_core.artifacts.attempts import MARKER
from gif_core.retraining import promote, should_promote
from gif_core.separation import open_code_vectors
from gif_core.synthetic import draw_jpeg
from gif_core.tokenization import read_codes
from schemas.loading import load_config
from schemas.retraining import RetrainingPolicy
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName

pytestmark = pytest.mark.usefixtures("prefect", "one_thread")
IDENTITIES = 24
Place = Callable[..., RunConfig]


def draw(root: Path, identities: range, samples: int = 4) -> None:
    for person in identities:
        (root / f"p{person:02d}").mkdir(parents=True, exist_ok=True)
        for sample in range(samples):
            (root / f"p{person:02d}" / f"{sample}.jpg").write_bytes(draw_jpeg(0, person, sample))


def config_of(place: Path, settings: dict[str, Any], *overrides: str) -> RunConfig:
    table = {
        "store": str(place / "store"),
        "ingestion": {"sources": [{"kind": "folder", "path": str(place / "faces")}], "held_out": 0.3},
        "tokenization": {"length": 2},
        "training": settings["training"] | {"epochs": 4},
        "evaluation": {
            "sets": [{"kind": "held_out"}, {"kind": "synthetic_bin", "identities": 40, "pairs": 200}],
            "pairs": 40,
            "systems": ["model"],
        },
        "execution": {"workers": 1},
    }
    return load_config({**settings, **table}, list(overrides))


@pytest.fixture(scope="module")
def crowned(
    prefect_api: str, one_thread: None, tiny_settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A place with faces and a store, whose run has become champion."""
    place = tmp_path_factory.mktemp("crowned")
    draw(place / "faces", range(IDENTITIES))
    config = config_of(place, tiny_settings)
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        record = gif(config)
        result = retrain(config)
    assert result.outcome == "first"
    assert champion(config) == record.stages["training"].key
    assert {done.action for done in list_runs(ArtifactStore(config.store))[0].stages.values()} == {"reused"}
    return place


@pytest.fixture
def copied(crowned: Path, tmp_path: Path, tiny_settings: dict[str, Any]) -> Place:
    """A copy of that place for a test of its own; what is stored counts by what it holds, not by where it lies."""
    shutil.copytree(crowned, tmp_path / "copy")
    return lambda *overrides: config_of(tmp_path / "copy", tiny_settings, *overrides)


def faces(config: RunConfig) -> Path:
    return Path(config.store).parent / "faces"


def policy(**given: Any) -> RetrainingPolicy:
    return RetrainingPolicy.model_validate({"promotion": {"replicas": 200}, **given})


def champion(config: RunConfig) -> str:
    tag = read_tag(ArtifactStore(config.store), "training", "champion")
    assert tag is not None
    return tag.ref.key


def artifact(config: RunConfig, stage: StageName, key: str) -> Artifact:
    store = ArtifactStore(config.store)
    return store.open(store.ref(stage, key))


def shown(state: State) -> str:
    run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[state.state_details.flow_run_id]))
    with get_client(sync_client=True) as client:
        [found] = [found for found in client.read_artifacts(artifact_filter=run) if found.key == "retraining"]
    return str(found.data)


def test_nothing_new_ends_at_once_and_says_so(copied: Place) -> None:
    config = copied()
    store, before = ArtifactStore(config.store), champion(config)
    runs, decisions = len(list_runs(store)), read_history(store)
    state = retrain(config, policy(), return_state=True)
    said = f"nothing new: the sources have not changed since training/{before[:12]} was trained"
    assert state.message == said
    assert shown(state) == f"{said.capitalize()}."
    assert state.result().outcome == "nothing_new"
    assert len(list_runs(store)) == runs
    assert read_history(store) == decisions


def test_new_identities_get_codes_beside_those_of_the_others_and_the_challenger_starts_from_the_champion(
    copied: Place,
) -> None:
    config = copied()
    draw(faces(config), range(IDENTITIES, IDENTITIES + 6))
    old = ArtifactStore(config.store).open(ArtifactStore(config.store).ref("training", champion(config)))
    state = retrain(config, policy(training={"learning_rate_share": 1e-9}), return_state=True)
    decision = state.result().decision
    run = list_runs(ArtifactStore(config.store))[0]
    assert decision.run_id == run.run_id
    assert list(run.stages) == list(STAGES)
    made = {stage: artifact(config, stage, run.stages[stage].key) for stage in STAGES}

    assert made["embedding"].manifest.metrics["parts_computed"] == 1, "that of the new identities"
    assert len(pq.read_table(made["ingestion"].path("identities.parquet"))) == 21
    before = {stage: artifact(config, stage, source.key) for stage, source in old.manifest.inputs.items()}
    vectors = [open_code_vectors(each["separation"]) for each in (before, made)]
    np.testing.assert_allclose(vectors[1][:18], vectors[0], atol=1e-6)
    codes = [read_codes(each["tokenization"].path("codes.duckdb"))[0] for each in (before, made)]
    np.testing.assert_array_equal(codes[1][:18], codes[0])
    assert len(np.unique(codes[1], axis=0)) == 21
    assert (decision.codes.action, decision.codes.new_identities) == ("extend", 3)
    assert decision.codes.occupancy == pytest.approx(21 / 25)
    assert decision.codes.separation == made["separation"].manifest.metrics["min_distance"]

    settings = made["training"].manifest.settings
    assert decision.fine_tuned
    assert (settings["start_from"], settings["epochs"]) == (old.ref.key, 1)
    assert made["training"].manifest.metrics["started_from"] == "backbone and head"

    scored = {name: artifact(config, "evaluation", key) for name, key in decision.evaluations.items()}
    assert scored["champion"].manifest.inputs["training"].key == old.ref.key
    assert scored["challenger"].ref == made["evaluation"].ref
    assert len({each.manifest.inputs["ingestion"].key for each in scored.values()}) == 1
    assert [row.set for row in decision.metrics] == ["held_out", "synthetic-LFW"]
    assert scored["champion"].ref.key in made["reporting"].manifest.settings["beside"], "the report shows both"

    assert decision.kind == "kept", "it has learned nothing"
    assert decision.because.startswith("no metric is higher by more than chance explains")
    assert (False, decision.because) == should_promote(decision.metrics)
    assert champion(config) == old.ref.key
    assert f"training/{old.ref.key[:12]} stays champion" in state.message
    assert "| Held out: Accuracy |" in shown(state)
    assert "Codes were extended: 21 of 25 codes would be used" in shown(state)

    again = retrain(config, policy())
    assert again.message == f"nothing new: the sources have not changed since decision {decision.number} (kept)"


def test_a_worse_challenger_is_refused_and_a_better_one_promoted_each_for_its_reason(copied: Place) -> None:
    """The interval is narrow, for the models are small; the reasons are those of the rule."""
    config = copied("evaluation.sets=[{kind: synthetic_bin, identities: 40, pairs: 200}]")
    good, narrow = champion(config), {"replicas": 200, "confidence": 0.51}
    draw(faces(config), range(IDENTITIES, IDENTITIES + 6))
    ruinous = policy(promotion=narrow, training={"learning_rate_share": 1e4})
    refused = retrain(config, ruinous)
    assert refused.outcome == "kept"
    assert refused.decision is not None
    assert refused.decision.because.endswith("lower by more than chance explains")
    assert champion(config) == good

    store, ruined = ArtifactStore(config.store), str(refused.decision.challenger)
    promote(store, store.open(store.ref("training", ruined)), because="to see what happens")
    draw(faces(config), range(IDENTITIES + 6, IDENTITIES + 8))
    promoted = retrain(config, policy(promotion=narrow, training={"fine_tune": "never"}))
    assert promoted.outcome == "promoted"
    assert promoted.decision is not None
    assert "higher by more than chance explains, and none is lower" in promoted.decision.because
    assert champion(config) == promoted.decision.challenger != good
    assert [entry.kind for entry in read_history(store)] == ["first", "kept", "by_hand", "promoted"]
    assert promoted.decision.fine_tuned is False
    assert retrain(config, policy()).outcome == "nothing_new"


def test_codes_are_made_anew_when_the_tree_would_be_too_full(copied: Place) -> None:
    config = copied()
    draw(faces(config), range(IDENTITIES, IDENTITIES + 6))
    decision = retrain(config, policy(codes={"fullest": 0.8})).decision
    assert decision is not None
    assert decision.codes is not None
    assert (decision.codes.action, decision.fine_tuned) == ("rebuild", False)
    assert decision.codes.because == "21 of 25 codes would be used, more than 80%"
    settings = artifact(config, "training", str(decision.challenger)).manifest.settings
    assert "start_from" not in settings


def test_the_same_model_again_is_nothing_new_even_when_it_is_forced(copied: Place) -> None:
    config = copied()
    forced = policy(codes={"prefer": "rebuild"}, training={"fine_tune": "never"})
    result = retrain(config, forced, force=True)
    assert result.outcome == "nothing_new"
    assert result.message == f"these settings and sources produce the champion training/{champion(config)[:12]} again"


def test_a_tag_that_is_behind_the_last_decision_is_moved_at_the_start(copied: Place) -> None:
    config = copied()
    store, right = ArtifactStore(config.store), champion(config)
    store.storage.remove("tags/training/champion.json")
    assert retrain(config, policy()).outcome == "nothing_new"
    assert champion(config) == right


@contextmanager
def damaged(artifact: Artifact, name: str) -> Iterator[None]:
    """Meanwhile one bit of a file is another."""
    path = artifact.path(name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    yield
    path.write_bytes(whole)


def kept_by_prefect(config: RunConfig) -> list[dict[str, Any]]:
    """The results that flows and tasks have left in the store, an exception where one failed; no file is but JSON."""
    paths = (Path(config.store) / "prefect").iterdir()
    return [json.loads(path.read_text()) for path in paths]


def test_a_retraining_that_fails_between_its_stages_is_recorded_and_whatever_prefect_keeps_of_it_is_json(
    copied: Place,
) -> None:
    config = copied()
    model = artifact(config, "training", champion(config))
    codes = artifact(config, "tokenization", model.manifest.inputs["tokenization"].key)
    draw(faces(config), range(IDENTITIES, IDENTITIES + 6))
    for part, file, stage in ((codes, "codes.parquet", None), (model, "backbone.safetensors", "evaluation")):
        before = len(kept_by_prefect(config))
        with damaged(part, file):
            assert retrain(config, policy(), return_state=True).is_failed()
        record = list_runs(ArtifactStore(config.store))[0]
        assert (record.state, record.current) == ("failed", stage)
        assert f"{file} of {part.ref}" in str(record.error)
        assert len(kept_by_prefect(config)) > before
    assert gif(load_config(config, ["seed=7"]), only="training", return_state=True).is_failed()
    kept = kept_by_prefect(config)
    assert {each["metadata"]["serializer"]["type"] for each in kept if "metadata" in each} == {"json"}
    assert sum("__exc_type__" in each for each in kept) == 3
    assert any("RetrainingResult" in each.get("__class__", "") for each in kept), "that of the first champion"


def test_a_wrong_policy_is_refused_before_anything_runs(copied: Place) -> None:
    config = copied()
    with pytest.raises(ParameterTypeError, match="fullest"):
        retrain(config, {"codes": {"fullest": 2}})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["training", "decision"])
def test_a_killed_retraining_is_carried_on_by_the_next_and_decides_once(
    moment: str, copied: Place, tmp_path: Path, start_gif: Callable[..., BaseProcess]
) -> None:
    config = copied()
    draw(faces(config), range(IDENTITIES, IDENTITIES + 6))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    store, before = Path(config.store), champion(config)
    pattern = f"training/*/*/{MARKER}" if moment == "training" else "decisions/champion/000002.json"
    process = start_gif("retrain", "--config", str(tmp_path / "run.yaml"))
    end = time.monotonic() + 180
    while not list(store.glob(pattern)):
        assert process.is_alive()
        assert time.monotonic() < end, f"{moment} did not come"
        time.sleep(0.001)
    process.kill()
    process.join()

    result = retrain(config)
    history = read_history(ArtifactStore(config.store))
    assert len(history) == 2
    assert result.outcome == ("nothing_new" if moment == "decision" else history[1].kind)
    assert history[1].before == before
    assert champion(config) == history[1].champion
    kept = ArtifactStore(config.store)
    assert [check for check in check_artifacts(kept, kept.refs()) if check.fault] == []
