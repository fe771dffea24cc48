"""A model exported as a folder is the same model in the store of its receiver, or it is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from huggingface_hub import ModelCard

from gif_core.artifacts import (
    ArtifactMissingError,
    ArtifactStore,
    RecordDamagedError,
    find_model,
    find_unneeded,
    seal,
    sha256_of,
    unseal,
    with_ancestors,
)
from gif_core.backbones import WeightsError
from gif_core.galleries import EnrolledGallery, enroll, read_album
from gif_core.recognition import Recognizer
from gif_core.retraining import open_champion, promote
from gif_core.sharing import PullError, export_folder, pull_folder, tag_for
from gif_core.synthetic import draw_jpeg
from gif_core.training.job import describe_job
from schemas.run import RunConfig
from schemas.sharing import SharedModel
from tests.recognition_store import fill_store

FILES = ["README.md", "config.json", "model.safetensors", "scores.json"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an evaluated model, and the folder of that model."""
    folder = tmp_path_factory.mktemp("sharing")
    fill_store(folder / "store")
    store = ArtifactStore(str(folder / "store"))
    export_folder(store, find_model(store, "latest").artifact, folder / "shared", name="me/My-Model", licence="mit")
    return folder


@pytest.fixture
def shared(work: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(work / "shared", tmp_path / "shared"))


@pytest.fixture
def receiver(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "receiver"))


def change_config(folder: Path, **changes: object) -> None:
    """Write a record with other values and a digest that fits."""
    path = folder / "config.json"
    record = unseal(SharedModel, path.read_bytes(), "config.json")
    path.write_bytes(seal(record.model_copy(update=changes)))


def test_a_pulled_model_embeds_and_verifies_as_the_original_does(
    work: Path, shared: Path, receiver: ArtifactStore
) -> None:
    pulled = pull_folder(receiver, shared, "theirs")
    assert pulled.has_scores
    original = Recognizer.load(str(work / "store"), "latest", "cpu")
    again = Recognizer.load(receiver, "theirs", "cpu")
    faces = [draw_jpeg(0, person, 0) for person in range(3)]
    assert np.array_equal(original.embed(faces), again.embed(faces))
    for other in faces:
        assert again.verify(faces[0], other) == original.verify(faces[0], other)
    assert again.verify(*faces[:2]).domain == "drawn faces", "the warning goes with the model"


def test_people_are_enrolled_with_a_pulled_model(shared: Path, receiver: ArtifactStore, tmp_path: Path) -> None:
    pull_folder(receiver, shared, "theirs")
    for person in range(3):
        (tmp_path / "photos" / f"P{person}").mkdir(parents=True)
        (tmp_path / "photos" / f"P{person}" / "1.jpg").write_bytes(draw_jpeg(0, person, 0))
    enroll(Recognizer.load(receiver, "theirs", "cpu"), receiver, "staff", read_album(tmp_path / "photos"))
    found = EnrolledGallery.open(receiver, "staff", device="cpu").identify(draw_jpeg(0, 1, 0))
    assert found[0].candidates[0].label == "P1"


def test_what_a_pulled_model_came_without_is_said(shared: Path, receiver: ArtifactStore) -> None:
    pulled = pull_folder(receiver, shared, "theirs")
    with pytest.raises(ArtifactMissingError, match=r"came without its separation: it embeds .* 'gif enroll'"):
        Recognizer.load(receiver, "theirs", "cpu").identify(draw_jpeg(0, 1, 0))
    model = receiver.open(pulled.ref)
    assert promote(receiver, model, because="theirs").champion == pulled.ref.key
    with pytest.raises(ArtifactMissingError, match="came without its separation"):
        open_champion(receiver, model)


def test_a_training_can_start_from_a_pulled_model(work: Path, shared: Path, tmp_path: Path) -> None:
    shutil.copytree(work / "store", tmp_path / "own")
    store = ArtifactStore(str(tmp_path / "own"))
    artifacts = with_ancestors(store, find_model(store, "latest").artifact)
    pulled = pull_folder(store, shared, "theirs")
    config = RunConfig.model_validate({"store": str(tmp_path / "own"), "training": {"start_from": pulled.ref.key}})
    with store.draft(store.ref("training", "9" * 64), {}, {}) as draft:
        start = describe_job(config, artifacts, draft).start
    assert start is not None
    assert Path(start.backbone).read_bytes() == (shared / "model.safetensors").read_bytes()
    assert start.head is None


def test_pulling_again_changes_nothing_and_pruning_keeps_the_model(shared: Path, receiver: ArtifactStore) -> None:
    first = pull_folder(receiver, shared, "theirs")
    manifests = receiver.manifests()
    assert pull_folder(receiver, shared, "theirs") == first
    assert receiver.manifests() == manifests
    assert {manifest.stage for manifest in manifests} == {"training", "evaluation"}
    assert find_unneeded(receiver, keep_runs=0) == []


def test_the_folder_holds_no_label_and_no_path_of_the_machine(work: Path) -> None:
    assert sorted(path.name for path in (work / "shared").iterdir()) == FILES
    labels = pq.read_table(next(work.glob("store/ingestion/*/*/identities.parquet")))["label"].to_pylist()
    for path in (work / "shared").iterdir():
        content = path.read_bytes()
        assert not any(label.encode() in content for label in labels)
        assert str(work).encode() not in content


def test_the_hub_reads_licence_and_scores_from_the_card(work: Path) -> None:
    scores = json.loads(next(work.glob("store/evaluation/*/*/scores.json")).read_text())
    metrics = scores["sets"]["held_out"]["systems"]["model"]
    card = ModelCard.load(work / "shared" / "README.md")
    assert card.data.license == "mit"
    assert card.data.library_name == "gif-face-recognition"
    stated = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert stated["accuracy"] == metrics["accuracy"]
    assert stated == {name: value for name, value in metrics.items() if name not in ("threshold", "accuracy_std")}


def test_the_card_states_data_protocol_flags_thresholds_limits_and_lineage(work: Path) -> None:
    text = (work / "shared" / "README.md").read_text("utf-8")
    known = Recognizer.load(str(work / "store"), "latest", "cpu").thresholds["held_out"]
    assert "78 images of 13 identities; 3 other identities were held out. Kinds of sources: synthetic." in text
    assert f"| Held out | Accuracy | {known.accuracy:.2%} | pairs-1 | flip, 10 folds |" in text
    assert f"| Held out | 80 | {known.cosine:.4f} |" in text
    assert "drawn faces only: the scores and thresholds above do not hold for photographs" in text
    assert "gif verify a.jpg b.jpg --model my-model" in text
    model = find_model(ArtifactStore(str(work / "store")), "latest").artifact
    assert f"| training | `{model.ref.key[:12]}` | `{model.manifest.digest[:12]}` |" in text


def flip(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)


def test_a_file_that_was_changed_or_is_missing_is_refused(shared: Path, receiver: ArtifactStore) -> None:
    for name in ("model.safetensors", "scores.json"):
        kept = (shared / name).read_bytes()
        flip(shared, name)
        with pytest.raises(PullError, match=rf"{name} has sha256 .* was changed; get it again"):
            pull_folder(receiver, shared, "theirs")
        (shared / name).unlink()
        with pytest.raises(PullError, match=rf"{name} is missing: .* get it again"):
            pull_folder(receiver, shared, "theirs")
        (shared / name).write_bytes(kept)
    flip(shared, "config.json")
    with pytest.raises(RecordDamagedError, match=r"config\.json is damaged"):
        pull_folder(receiver, shared, "theirs")
    assert receiver.refs() == []


def test_a_record_that_does_not_fit_its_weights_is_refused(shared: Path, receiver: ArtifactStore) -> None:
    change_config(shared, backbone="mobilefacenet")
    with pytest.raises(WeightsError, match="does not fit the model"):
        pull_folder(receiver, shared, "theirs")
    change_config(shared, backbone="iresnet_tiny", head="groupface", embedding_dim=8192, groups=4096)  # a terabyte
    with pytest.raises(WeightsError, match="does not fit the model"):
        pull_folder(receiver, shared, "theirs")
    change_config(shared, backbone="__import__")
    with pytest.raises(RecordDamagedError, match="backbone: Input should be 'iresnet_tiny'"):
        pull_folder(receiver, shared, "theirs")
    assert receiver.refs() == []


def write_scores(folder: Path, text: str) -> None:
    """Other scores, with the size and digest that the record then names."""
    path = folder / "scores.json"
    path.write_text(text)
    record = unseal(SharedModel, (folder / "config.json").read_bytes(), "config.json")
    new = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    change_config(folder, files=tuple(f.model_copy(update=new) if f.name == path.name else f for f in record.files))


def change_scores(folder: Path, old: str, new: str) -> None:
    text = (folder / "scores.json").read_text()
    assert old in text
    write_scores(folder, text.replace(old, new))


def list_another_file(folder: Path) -> None:
    record = unseal(SharedModel, (folder / "config.json").read_bytes(), "config.json")
    change_config(folder, files=(*record.files, record.files[0].model_copy(update={"name": "setup.py"})))


def test_control_characters_in_the_licence_are_refused(shared: Path, receiver: ArtifactStore) -> None:
    change_config(shared, license="\x1b[2J")
    with pytest.raises(RecordDamagedError, match="license"):
        pull_folder(receiver, shared, "theirs")


NO_SCORES = "does not hold scores as evaluation writes them"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "is not a shared model: it has no config.json"),
        (lambda folder: (folder / "config.json").write_bytes(b" " * 2**21), "is larger than 1,048,576 bytes"),
        (lambda folder: write_scores(folder, '{"format": 4, "sets": {"LFW": {"systems": []}}}'), NO_SCORES),
        (lambda folder: write_scores(folder, "[" * 200_000), NO_SCORES),
        (lambda folder: write_scores(folder, " " * 2**21), "is larger than 1,048,576 bytes"),
        (lambda folder: change_scores(folder, '"threshold": ', '"threshold": "low", "was": '), NO_SCORES),
        (lambda folder: change_scores(folder, '"accuracy": ', '"accuracy": NaN, "was": '), NO_SCORES),
        (lambda folder: change_scores(folder, '"protocol"', '"was"'), NO_SCORES),
        (list_another_file, "it must be model.safetensors, and scores.json"),
    ],
)
def test_folders_that_are_no_models_are_refused(
    shared: Path, receiver: ArtifactStore, damage: Callable[[Path], None], message: str
) -> None:
    damage(shared)
    with pytest.raises(PullError, match=message):
        pull_folder(receiver, shared, "theirs")


def test_tags_that_promotions_move_are_not_taken(shared: Path, receiver: ArtifactStore) -> None:
    with pytest.raises(PullError, match=r"--tag champion: .* choose another"):
        pull_folder(receiver, shared, "champion")


def test_the_tag_of_another_model_is_moved_only_when_asked(work: Path, shared: Path, receiver: ArtifactStore) -> None:
    first = pull_folder(receiver, shared, "theirs")
    change_config(shared, license="apache-2.0")
    with pytest.raises(PullError, match=rf"the tag theirs is that of {first.ref}: .*--replace"):
        pull_folder(receiver, shared, "theirs")
    assert find_model(receiver, "theirs").artifact.ref == first.ref
    second = pull_folder(receiver, shared, "theirs", replace=True)
    assert find_model(receiver, "theirs").artifact.ref == second.ref != first.ref


def test_the_default_tag_is_the_name_of_the_source() -> None:
    assert tag_for("me/My Model.v2") == "my-model.v2"
    assert tag_for("folder/2024") == "model-2024"
