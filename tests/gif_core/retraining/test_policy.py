"""What a retraining decides before it trains: codes, start, and whether there is anything to do."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gif_core.artifacts import Artifact, ArtifactStore, artifact_key
from gif_core.planning import stage_settings
from gif_core.retraining import (
    Champion,
    challenger_config,
    check_separation,
    choose_codes,
    extend_codes,
    find_earlier_verdict,
    open_champion,
)
from gif_core.tokenization import CodeShape, write_code_table
from schemas.retraining import CodesChoice, CodesPolicy, Decision, TrainingPolicy
from schemas.run import RunConfig
from schemas.stages import INPUTS, StageName

KNOWN, SHAPE = 6, CodeShape(2, 3)
Faces = Callable[..., Artifact]
EXTENDED = CodesChoice(action="extend", because="x", identities=7)
REBUILT = CodesChoice(action="rebuild", because="x", identities=7)


def identities(labels: list[str]) -> pa.Table:
    columns = {"identity_id": np.arange(len(labels)), "label": labels, "num_samples": np.ones(len(labels), np.int32)}
    return pa.table(columns)


def names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def write_codes(folder: Path) -> dict[str, float | int | str]:
    codes = np.stack([np.arange(KNOWN) // 3, np.arange(KNOWN) % 3], axis=1)
    write_code_table(folder, codes, SHAPE, identities(names(KNOWN)))
    return {"identities": KNOWN, "length": SHAPE.length, "vocab_size": SHAPE.vocab_size}


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    embedding = {"model": "tiny-clip", "pretrained": "random"}
    training = {"backbone": "iresnet_tiny", "epochs": 20, "warmup_steps": 100, "learning_rate": 0.1}
    return RunConfig.model_validate({"store": str(tmp_path), "embedding": embedding, "training": training})


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path))


def publish(
    store: ArtifactStore,
    config: RunConfig,
    stage: StageName,
    made: dict[StageName, Artifact],
    fill: Callable[[Path], dict[str, Any]],
) -> Artifact:
    settings = {} if stage == "ingestion" else stage_settings(store, config, stage, made)
    inputs = {name: made[name].made_from for name in INPUTS[stage]}
    ref = store.ref(stage, artifact_key(stage, settings, {name: source.key for name, source in inputs.items()}))
    with store.draft(ref, settings, inputs) as draft:
        draft.metrics |= fill(draft.folder)
        return store.open(store.publish(draft))


def touch(**metrics: float) -> Callable[[Path], dict[str, Any]]:
    def fill(folder: Path) -> dict[str, Any]:
        (folder / "file").write_text(str(metrics))
        return metrics

    return fill


@pytest.fixture
def champion(store: ArtifactStore, config: RunConfig) -> Champion:
    made: dict[StageName, Artifact] = {}
    fills: dict[StageName, Callable[[Path], dict[str, Any]]] = {
        "ingestion": touch(identities=KNOWN),
        "embedding": touch(),
        "separation": touch(min_distance=0.6),
        "tokenization": write_codes,
        "training": touch(),
    }
    for stage, fill in fills.items():
        made[stage] = publish(store, config, stage, made, fill)
    return open_champion(store, made["training"])


@pytest.fixture
def faces(store: ArtifactStore) -> Faces:
    def make(labels: list[str]) -> Artifact:
        with store.draft(store.ref("ingestion", "f" * 64), {}, {}) as draft:
            pq.write_table(identities(labels), draft.folder / "identities.parquet")
            return store.open(store.publish(draft, replace=True))

    return make


def choose(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Artifact, **policy: Any
) -> tuple[str, str]:
    choice = choose_codes(store, config, champion, faces, CodesPolicy.model_validate(policy))
    return choice.action, choice.because


def test_codes_are_extended_until_the_tree_is_too_full(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Faces
) -> None:
    assert choose(store, config, champion, faces(names(8))) == ("extend", "8 of 9 codes would be used, at most 95%")
    assert choose(store, config, champion, faces(names(9))) == ("rebuild", "9 of 9 codes would be used, more than 95%")
    assert choose(store, config, champion, faces(names(9)), fullest=1)[0] == "extend"
    choice = choose_codes(store, config, champion, faces(names(8)), CodesPolicy())
    assert (choice.identities, choice.new_identities) == (8, 2)
    assert choice.occupancy == pytest.approx(8 / 9)


def test_codes_are_made_anew_when_somebody_has_left(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Faces
) -> None:
    left = choose_codes(store, config, champion, faces(["p0", "p2", *names(8)[2:]]), CodesPolicy())
    assert (left.action, left.because) == ("rebuild", "the identities do not begin with those of the champion")
    assert left.new_identities is None
    assert choose(store, config, champion, faces(names(5)))[0] == "rebuild"


def test_codes_are_made_anew_when_the_policy_or_other_settings_ask_for_it(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Faces
) -> None:
    assert choose(store, config, champion, faces(names(7)), prefer="rebuild") == (
        "rebuild",
        "the policy is to rebuild codes",
    )
    other = config.model_copy(update={"tokenization": config.tokenization.model_copy(update={"length": 3})})
    assert choose(store, other, champion, faces(names(7))) == (
        "rebuild",
        "settings have changed: tokenization.length",
    )


def test_a_length_of_null_that_would_be_another_for_more_identities_still_extends_codes_also_twice(
    store: ArtifactStore, config: RunConfig, champion: Champion, faces: Faces
) -> None:
    def shaped(**settings: int | None) -> RunConfig:
        return config.model_copy(update={"tokenization": config.tokenization.model_copy(update=settings)})

    asked = shaped(max_vocab_size=KNOWN + 1)
    begun = champion.tokenization.manifest.settings
    assert (begun["length"], "max_vocab_size" in begun) == (1, False), "resolved"
    assert choose(store, asked, champion, faces(names(8)))[0] == "extend", "8 identities from scratch have 2 tokens"
    assert choose(store, shaped(length=1), champion, faces(names(8)))[0] == "extend", "the same length, in numbers"
    assert choose(store, shaped(max_vocab_size=KNOWN - 1), champion, faces(names(8)))[0] == "rebuild"

    settings = stage_settings(store, extend_codes(config, champion), "tokenization")
    with store.draft(store.ref("tokenization", "e" * 64), settings, {}) as draft:
        draft.metrics |= write_codes(draft.folder) | {"identities": 8}
        twice = Champion(champion.training, champion.separation, store.open(store.publish(draft)))
    assert choose(store, asked, twice, faces(names(8)))[0] == "extend"
    assert choose(store, shaped(length=3), twice, faces(names(8)))[0] == "rebuild"
    store.remove(champion.tokenization.ref)
    assert choose(store, asked, twice, faces(names(8)))[0] == "extend", "also without the first codes"


def test_codes_are_made_anew_when_code_vectors_would_be_too_close(
    store: ArtifactStore, config: RunConfig, champion: Champion
) -> None:
    def check(distance: float, before: Champion = champion) -> CodesChoice:
        with store.draft(store.ref("separation", f"{round(distance * 100):064x}"), {}, {}) as draft:
            draft.metrics["min_distance"] = distance
            (draft.folder / "file").touch()
            extended = store.open(store.publish(draft))
        return check_separation(store, EXTENDED, before, extended, CodesPolicy(least_separation=0.5))

    near, far = check(0.29), check(0.31)
    assert (near.action, near.because) == ("rebuild", "the minimum distance would be 0.290, below 50% of 0.600")
    assert (far.action, far.separation, far.separation_before) == ("extend", 0.31, 0.6)
    # Extended once already: it still counts what the distance was when all identities moved.
    settings = {"extends": champion.separation.ref.key}
    with store.draft(store.ref("separation", "e" * 64), settings, {}) as draft:
        draft.metrics["min_distance"] = 0.4
        (draft.folder / "file").touch()
        once = store.open(store.publish(draft))
    assert check(0.25, Champion(champion.training, once, champion.tokenization)).action == "rebuild"


def test_a_challenger_is_fine_tuned_on_extended_codes_and_trained_anew_on_new_ones(
    config: RunConfig, champion: Champion
) -> None:
    tuned, is_tuned = challenger_config(config, champion, EXTENDED, TrainingPolicy())
    assert is_tuned
    assert tuned.training.start_from == champion.training.ref.key
    assert (tuned.training.epochs, tuned.training.warmup_steps) == (5, 25)
    assert tuned.training.learning_rate == pytest.approx(0.01)
    assert tuned.training.row_rate == pytest.approx(0.3), "rows that have learned are not thrown off"
    assert tuned.separation.extends == champion.separation.ref.key
    assert tuned.tokenization.extends == champion.tokenization.ref.key
    assert challenger_config(config, champion, REBUILT, TrainingPolicy()) == (config, False)
    always, is_tuned = challenger_config(config, champion, REBUILT, TrainingPolicy(fine_tune="always"))
    assert is_tuned
    assert always.tokenization.extends is None
    never, is_tuned = challenger_config(config, champion, EXTENDED, TrainingPolicy(fine_tune="never"))
    assert not is_tuned
    assert never.training == config.training
    assert never.tokenization.extends is not None


def test_a_challenger_of_another_network_is_trained_anew(config: RunConfig, champion: Champion) -> None:
    other = config.model_copy(update={"training": config.training.model_copy(update={"backbone": "iresnet18"})})
    assert challenger_config(other, champion, EXTENDED, TrainingPolicy())[1] is False


def test_a_key_without_links_is_as_it_was_before_there_were_any(config: RunConfig, champion: Champion) -> None:
    tuned, _ = challenger_config(config, champion, EXTENDED, TrainingPolicy())
    links: dict[StageName, str] = {"separation": "extends", "tokenization": "extends", "training": "start_from"}
    for stage, link in links.items():
        assert link not in config.settings(stage)
        assert len(tuned.settings(stage)[link]) == 64


def test_faces_that_were_decided_about_are_nothing_new(champion: Champion) -> None:
    entry = Decision(
        number=3,
        tag="champion",
        kind="rolled_back",
        champion="a" * 64,
        because="x",
        made_at=datetime.now(UTC),
        ingestion="b" * 64,
    )
    assert find_earlier_verdict("c" * 64, champion, [entry]) is None
    assert (
        find_earlier_verdict("b" * 64, champion, [entry])
        == "the sources have not changed since decision 3 (rolled back)"
    )
    assert "was trained" in str(find_earlier_verdict(champion.ingestion, champion, []))
