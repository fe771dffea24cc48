"""`gif embed`, `gif verify` and `gif identify` on a small store that is written by hand."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from flows.cli.encoders import print_vectors
from flows.cli.photographs import FaceModes, read_given
from flows.cli.recognition import By
from gif_core.artifacts import ArtifactStore, begin_run, resolve, save_run
from gif_core.backbones import embed_images
from gif_core.detection import FACE_MODES
from gif_core.protocols.sets.synthetic import FIRST_IDENTITY
from gif_core.recognition import METHODS
from gif_core.retraining import promote
from gif_core.synthetic import draw_face, draw_jpeg, find_landmarks
from gif_core.training import open_backbone
from schemas.artifacts import StageRecord
from schemas.run import RunConfig
from schemas.stages import StageName
from tests.recognition_store import CPU, fill_store, open_split, save_model

Gif = Callable[..., str]
STRANGERS = 8
STRANGERS_SHOWN = ("Naomi_Watts", "Vicente_Fox")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and images of identities who are enrolled, who were held out, and whom evaluation has never seen."""
    folder = tmp_path_factory.mktemp("recognition")
    artifacts = fill_store(folder / "store")
    for split in ("identities", "held_out"):
        faces = open_split(artifacts, split)
        for person in np.unique(faces.labels_N):
            row = int(np.flatnonzero(faces.labels_N == person)[0])
            (folder / f"{split}-{person}.jpg").write_bytes(faces.content(row))
    for person in range(STRANGERS):
        (folder / f"stranger-{person}.jpg").write_bytes(draw_jpeg(0, FIRST_IDENTITY + person, 0))
    return folder


@pytest.fixture
def gif(work: Path, monkeypatch: pytest.MonkeyPatch, run_gif: Gif) -> Gif:
    monkeypatch.chdir(work)
    monkeypatch.setenv("GIF_STORE", str(work / "store"))
    return lambda *arguments, **given: run_gif(*arguments, "--model", "latest", **given)


@pytest.fixture
def untaught(gif: Gif, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose model was trained without the loss of the codes."""
    fill_store(tmp_path / "store", code_weight=0)
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))


def files(work: Path, split: str) -> list[str]:
    return sorted(path.name for path in work.glob(f"{split}-*.jpg"))


@pytest.mark.parametrize("method", ["reranked", "exhaustive"])
def test_enrolled_identities_are_named_and_others_are_unknown(gif: Gif, work: Path, method: str) -> None:
    labels = pq.read_table(next(work.glob("store/ingestion/*/*/identities.parquet")))["label"].to_pylist()
    enrolled, strangers = files(work, "identities"), files(work, "stranger")
    printed = gif("identify", *enrolled, *strangers, "--by", method, "--top", "3", "--json")
    answers = {answer["image"]: answer for answer in map(json.loads, printed.splitlines())}
    for name in enrolled:
        best = answers[name]["candidates"][0]
        person = int(name.removesuffix(".jpg").partition("-")[2])
        assert answers[name]["known"]
        assert (best["identity_id"], best["label"]) == (person, labels[person])
        assert best["cosine"] == pytest.approx(1, abs=1e-5)
        assert 0 < best["probability"] < 1
        assert [each["cosine"] for each in answers[name]["candidates"]] == sorted(
            (each["cosine"] for each in answers[name]["candidates"]), reverse=True
        )
    assert len(strangers) == STRANGERS
    assert not any(answers[name]["known"] for name in strangers), "the threshold was set on other identities"


def test_the_table_names_identities_and_says_what_the_threshold_promises(gif: Gif, work: Path) -> None:
    printed = gif("identify", "identities-0.jpg", "held_out-0.jpg")
    assert "person-" in printed
    assert "unknown" in printed
    strangers = len(files(work, "held_out"))
    assert f"no more than 1.0% of {min(40, 6 * strangers)} images of {strangers} identities" in printed
    assert "% of new images of enrolled identities miss it" in printed


def test_the_probabilities_of_all_candidates_sum_to_one(gif: Gif, work: Path) -> None:
    (answer,) = map(
        json.loads, gif("identify", "held_out-0.jpg", "--by", "codes", "--top", "99", "--json").splitlines()
    )
    assert sum(each["probability"] for each in answer["candidates"]) == pytest.approx(1, abs=1e-5)
    probabilities = [each["probability"] for each in answer["candidates"]]
    assert probabilities == sorted(probabilities, reverse=True)


def test_features_are_printed_or_saved_and_are_those_of_evaluation(gif: Gif, work: Path) -> None:
    assert "1.00" in gif("embed", "identities-0.jpg", "identities-1.jpg")
    gif("embed", "identities-0.jpg", "identities-1.jpg", "--out", "features.parquet")
    saved = pq.read_table(work / "features.parquet")
    assert saved["image"].to_pylist() == ["identities-0.jpg", "identities-1.jpg"]
    vectors = np.array(saved["vector"].to_pylist())
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(2), abs=1e-6)
    store = ArtifactStore(str(work / "store"))
    ingestion, training = (store.open(resolve(store, f"{stage}@latest")) for stage in ("ingestion", "training"))
    faces, model = open_split({"ingestion": ingestion}, "identities"), open_backbone(training, CPU)
    rows = np.array([np.flatnonzero(faces.labels_N == person)[0] for person in (0, 1)])
    (wanted,) = embed_images(model, faces, rows, flip=True, device=CPU)
    assert vectors == pytest.approx(wanted, abs=1e-6)
    (plain,) = embed_images(model, faces, rows, flip=False, device=CPU)
    assert np.abs(vectors - plain).max() > 1e-3, "the mirror counts"
    assert "must end with .npy or .parquet" in gif("embed", "identities-0.jpg", "--out", "features.txt", code=2)


def test_verify_answers_by_the_threshold_of_evaluation(gif: Gif, work: Path) -> None:
    scores = json.loads(next(work.glob("store/evaluation/*/*/scores.json")).read_text())
    metrics = scores["sets"]["held_out"]["systems"]["model"]
    same = json.loads(gif("verify", "identities-0.jpg", "identities-0.jpg", "--json"))
    assert same["same"]
    assert same["cosine"] == pytest.approx(1, abs=1e-6)
    assert same["threshold"] == pytest.approx(1 - metrics["threshold"] / 2)
    assert (same["accuracy"], same["far"]) == (metrics["accuracy"], metrics["threshold_far"])
    for other in files(work, "held_out"):
        answer = json.loads(gif("verify", "identities-0.jpg", other, "--json"))
        assert answer["same"] == (answer["cosine"] > answer["threshold"])
    printed = gif("verify", "identities-0.jpg", "identities-0.jpg")
    assert "the same identity: cosine 1.000" in printed
    assert "pairs of held_out, drawn faces, accuracy is" in printed
    assert "These rates do not hold for photographs" in printed
    assert "there are: held_out" in gif("verify", "identities-0.jpg", "identities-1.jpg", "--set", "LFW", code=2)


def test_images_are_aligned_by_their_landmarks(gif: Gif, work: Path) -> None:
    import cv2

    wide = draw_face(0, 3, 1, size=300)
    cv2.imwrite(str(work / "wide.png"), cv2.cvtColor(wide, cv2.COLOR_RGB2BGR))
    points = find_landmarks(0, 3, 1, size=300)
    (work / "points.txt").write_text(f"wide.png {' '.join(map(str, points.reshape(-1)))}\n")
    gif("embed", "wide.png", "--faces", "aligned", "--out", "resized.npy")
    gif("embed", "wide.png", "--landmarks", "points.txt", "--out", "aligned.npy")
    assert not np.allclose(np.load(work / "resized.npy"), np.load(work / "aligned.npy"), atol=1e-3)
    assert "identities-0.jpg is not in points.txt" in gif(
        "embed", "identities-0.jpg", "--landmarks", "points.txt", code=2
    )


@pytest.fixture
def group(work: Path, detector: Path, photographs: Path) -> str:
    """A photograph of two people, the second one smaller; the detector is installed."""
    import cv2

    left, right = (cv2.imread(str(photographs / "strangers" / f"{name}_0001.jpg")) for name in STRANGERS_SHOWN)
    right = cv2.copyMakeBorder(cv2.resize(right, (125, 125)), 0, 125, 0, 0, cv2.BORDER_CONSTANT)
    cv2.imwrite(str(work / "group.jpg"), np.concatenate([left, right], axis=1))
    return "group.jpg"


def test_a_photograph_is_answered_for_its_largest_face_or_for_every_face_with_its_box(
    gif: Gif, work: Path, group: str
) -> None:
    largest = json.loads(gif("identify", group, "--json"))
    assert largest["remarks"] == ["one of 2 faces"]
    printed = gif("identify", group, "--all", "--json", "--draw", "named.png")
    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [answer["box"] for answer in answers] == sorted(answer["box"] for answer in answers)
    assert answers[0]["box"] == largest["box"]
    alone, first, second = (answer["candidates"][0]["cosine"] for answer in (largest, *answers))
    assert first == pytest.approx(alone, abs=1e-5)
    assert second != pytest.approx(alone, abs=1e-3)
    assert (work / "named.png").read_bytes()[:4] == b"\x89PNG"
    gif("embed", group, "--all", "--out", "faces.parquet", "--draw", "numbers.jpg")
    assert pq.read_table(work / "faces.parquet")["image"].to_pylist() == ["group.jpg#1", "group.jpg#2"]
    (answer,) = (json.loads(line) for line in gif("verify", group, group, "--json").splitlines() if line[0] == "{")
    assert answer["same"]
    assert [face["box"] for face in answer["faces"]] == [largest["box"]] * 2


def test_doubts_about_faces_are_noted(work: Path, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    read_given([work / group], FaceModes.auto)
    assert "group.jpg: one of 2 faces; the largest is used, --all answers for each" in capsys.readouterr().err
    assert [face.number for face in read_given([work / group], FaceModes.auto, every=True)] == [1, 2]
    assert capsys.readouterr().err == ""
    read_given([work / group], FaceModes.aligned)
    assert "group.jpg: does not look like an aligned face: its face is" in capsys.readouterr().err


def test_photographs_that_cannot_be_answered_are_told(gif: Gif, work: Path, group: str) -> None:
    import cv2

    cv2.imwrite(str(work / "wall.png"), np.full((200, 300, 3), 90, np.uint8))
    assert "wall.png: no face was found in this image of 300×200 pixels" in gif("identify", "wall.png", code=2)
    several = ("identities-0.jpg", "identities-1.jpg")
    assert "takes one photograph, not 2" in gif("identify", *several, "--draw", "out.jpg", code=2)
    assert "must end with .jpg or .jpeg or .png" in gif("identify", group, "--draw", "out.txt", code=2)
    assert "was taken as an aligned face; --faces detect" in gif(
        "identify", "identities-0.jpg", "--draw", "out.jpg", code=2
    )


def test_a_photograph_without_a_face_among_others_is_left_out_and_the_command_fails_in_the_end(
    gif: Gif, work: Path, group: str
) -> None:
    import cv2

    cv2.imwrite(str(work / "sky.png"), np.full((200, 300, 3), 200, np.uint8))
    lines = gif("identify", "sky.png", group, "identities-0.jpg", "--json", code=1).splitlines()
    assert [json.loads(line)["image"] for line in lines if line.startswith("{")] == [group, "identities-0.jpg"]
    assert any("sky.png: no face was found" in line and "it is left out" in line for line in lines)
    assert "left out" not in gif("verify", "sky.png", group, code=2), "a pair needs both"
    assert "vectors.parquet: 1 vectors" in gif("embed", "sky.png", group, "--out", "vectors.parquet", code=1)
    assert "left out" not in gif("embed", "sky.png", group, "--out", "vectors.npy", code=2), "a row for each"
    assert not (work / "vectors.npy").exists()


def test_the_table_of_many_features_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    vectors_ND = np.eye(6, dtype=np.float32)
    for count, hint in ((1, ""), (5, "columns on the right are cosines"), (6, "for at most 5 images")):
        print_vectors([f"photograph_{number}.jpg" for number in range(count)], vectors_ND[:count])
        printed = capsys.readouterr().out
        assert hint in printed
        assert printed.count("photograph_") == printed.count("…") == count, "nothing is cut or wrapped"


def test_without_a_detector_a_photograph_is_refused_and_the_way_out_is_told(
    gif: Gif, group: str, run_gif: Gif, no_detector: Path, detector: Path
) -> None:
    (installed,) = no_detector.rglob("*.onnx")
    installed.unlink()
    printed = gif("identify", group, code=2)
    assert "group.jpg is not an aligned face of 112×112 pixels, and no face detector is installed" in printed
    assert "gif detector install" in printed
    assert "known" in gif("identify", group, "--faces", "aligned", "--json")
    assert str(installed) in run_gif("detector", "install", str(detector))
    assert "box" in gif("identify", group, "--json")


def test_mistakes_are_told(gif: Gif, work: Path) -> None:
    (work / "text.jpg").write_text("no image")
    assert "text.jpg: not a JPEG" in gif("identify", "text.jpg", code=2)
    assert "'sight' is not one of 'reranked', 'codes', 'exhaustive'" in gif(
        "identify", "identities-0.jpg", "--by", "sight", code=2
    )


def test_the_ways_offered_are_those_of_the_core() -> None:
    assert {way.value for way in By} == set(METHODS)
    assert {mode.value for mode in FaceModes} == set(FACE_MODES)


def test_the_champion_is_used_unless_another_model_is_named(
    tmp_path: Path, work: Path, run_gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(work / "store", tmp_path / "store")
    monkeypatch.chdir(work)
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    store = ArtifactStore(str(tmp_path / "store"))
    [champion] = (store.open(ref) for ref in store.refs("training"))
    newer = store.ref("training", "f" * 64)
    with store.draft(newer, {}, champion.manifest.inputs) as draft:
        save_model(draft.folder)
        store.publish(draft)
    stages: dict[StageName, StageRecord] = {"training": StageRecord(key=newer.key, action="computed", seconds=1)}
    run = save_run(store, begin_run(store, RunConfig()), state="completed", stages=stages).run_id

    def used(*options: str) -> str:
        return str(json.loads(run_gif("identify", "identities-0.jpg", "--json", *options))["model"])

    assert used() == newer.key, "without a champion the newest run's"
    promote(store, champion, because="in use")
    assert used() == champion.ref.key
    assert used("--model", run) == used("--model", "ffff") == newer.key
    told = run_gif("verify", "identities-0.jpg", "identities-1.jpg", "--model", run, code=2)
    assert f"model: {newer}, of run {run}" in told
    assert "has no threshold" in told


def test_a_model_without_token_heads_says_what_it_needs(
    tmp_path: Path, work: Path, gif: Gif, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_store(tmp_path / "store", head="arcface")
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    printed = gif("identify", "identities-0.jpg", code=2)
    assert "trained with the head arcface, which does not read codes" in printed
    assert "cosine" in gif("verify", "identities-0.jpg", "identities-1.jpg")


@pytest.mark.parametrize("method", ["codes", "reranked"])
def test_a_model_that_was_not_taught_codes_says_so_where_they_are_needed(untaught: None, gif: Gif, method: str) -> None:
    printed = gif("identify", "identities-0.jpg", "--by", method, code=2)
    assert "trained with training.code_weight=0, which teaches its token heads nothing" in printed
    assert "--by exhaustive" in printed


def test_a_model_that_was_not_taught_codes_finds_identities_by_search_and_prints_no_probabilities(
    untaught: None, gif: Gif
) -> None:
    printed = gif("identify", "identities-3.jpg", "--by", "exhaustive", "--json")
    (answer,) = map(json.loads, printed.splitlines())
    assert answer["candidates"][0]["identity_id"] == 3
    assert {each["probability"] for each in answer["candidates"]} == {None}
    assert (
        "There is no threshold between known and unknown identities: this model was trained with training.code_weight=0"
        in gif("identify", "identities-3.jpg", "--by", "exhaustive")
    )


def test_identification_of_a_model_that_was_not_taught_codes_has_no_metrics_and_says_why(
    untaught: None, tmp_path: Path
) -> None:
    about = json.loads(next(tmp_path.glob("store/evaluation/*/*/identification.json")).read_text())
    assert about["systems"] == {}
    assert "training.code_weight=0" in about["undefined"]
