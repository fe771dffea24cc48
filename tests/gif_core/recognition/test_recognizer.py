"""The Python API on a small store that is written by hand."""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from gif_core.artifacts import Artifact, ArtifactMissingError, ArtifactStore, digests
from gif_core.recognition import NotAnImageError, NotEvaluatedError, Recognizer, read_faces
from gif_core.retraining import promote
from gif_core.synthetic import draw_face, find_landmarks
from schemas.errors import GifError
from schemas.stages import StageName
from tests.recognition_store import DIM, fill_store, open_split

Images = list[tuple[bytes, NDArray[np.uint8]]]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[StageName, Artifact]:
    return fill_store(tmp_path_factory.mktemp("recognizer") / "store")


@pytest.fixture(scope="module")
def store(artifacts: Mapping[StageName, Artifact]) -> ArtifactStore:
    return ArtifactStore(artifacts["training"].storage.url)


@pytest.fixture(scope="module")
def recognizer(store: ArtifactStore) -> Recognizer:
    return Recognizer.load(store, "latest", device="cpu")


@pytest.fixture(scope="module")
def enrolled(artifacts: Mapping[StageName, Artifact]) -> Images:
    """The first image of every enrolled identity, as a file and as pixels."""
    faces = open_split(artifacts, "identities")
    rows = np.unique(faces.labels_N, return_index=True)[1]
    return [(bytes(faces.content(int(row))), pixels) for row, pixels in zip(rows, faces.load(rows), strict=True)]


def test_paths_bytes_and_pixels_give_the_same_features(
    recognizer: Recognizer, enrolled: Images, tmp_path: Path
) -> None:
    content, pixels_HWC = enrolled[0]
    (tmp_path / "a.jpg").write_bytes(content)
    of_path = recognizer.embed(tmp_path / "a.jpg")
    assert (of_path.shape, of_path.dtype) == ((1, DIM), np.float32)
    for given in (str(tmp_path / "a.jpg"), content, pixels_HWC, pixels_HWC[None], [content]):
        assert recognizer.embed(given) == pytest.approx(of_path, abs=1e-6)
    assert np.linalg.norm(of_path) == pytest.approx(1, abs=1e-6)


def test_a_list_gives_a_row_for_each_image_in_its_order(recognizer: Recognizer, enrolled: Images) -> None:
    both_BD = recognizer.embed([enrolled[0][0], enrolled[1][1]])
    alone_BD = np.concatenate([recognizer.embed(enrolled[0][1]), recognizer.embed(enrolled[1][0])])
    assert both_BD == pytest.approx(alone_BD, abs=1e-5)


def test_landmarks_align_images_of_any_size(recognizer: Recognizer, tmp_path: Path) -> None:
    wide, points_52 = draw_face(0, 3, 1, size=300), find_landmarks(0, 3, 1, size=300)
    cv2.imwrite(str(tmp_path / "wide.png"), cv2.cvtColor(wide, cv2.COLOR_RGB2BGR))
    aligned_BD = recognizer.embed(tmp_path / "wide.png", points_52)
    assert recognizer.embed([wide], [points_52]) == pytest.approx(aligned_BD, abs=1e-6)
    assert not np.allclose(aligned_BD, recognizer.embed(tmp_path / "wide.png", faces="aligned"), atol=1e-3)


def test_verify_answers_by_the_threshold_of_evaluation(recognizer: Recognizer, enrolled: Images) -> None:
    [known] = recognizer.thresholds.values()
    same = recognizer.verify(enrolled[0][0], enrolled[0][1])
    assert (same.same, same.set, same.threshold) == (True, "held_out", known.cosine)
    assert (same.accuracy, same.far, same.pairs) == (known.accuracy, known.far, known.pairs)
    for content, _ in enrolled[1:]:
        answer = recognizer.verify(enrolled[0][0], content)
        assert answer.same == (answer.cosine > answer.threshold)
    with pytest.raises(GifError, match="there are: held_out"):
        recognizer.verify(enrolled[0][0], enrolled[1][0], pairs="LFW")


@pytest.mark.parametrize("by", ["reranked", "exhaustive"])
def test_identify_finds_every_enrolled_identity(recognizer: Recognizer, enrolled: Images, by: str) -> None:
    answers = recognizer.identify([content for content, _ in enrolled], top=3, by=by)  # type: ignore[arg-type]
    assert [answer.candidates[0].identity_id for answer in answers] == list(range(len(enrolled)))
    assert all(answer.known for answer in answers)
    assert all(len(answer.candidates) == 3 for answer in answers)
    assert answers[0].candidates[0].cosine == pytest.approx(1, abs=1e-5)
    assert answers[0].candidates[0].label.startswith("person-")
    assert 0 < (answers[0].candidates[0].probability or 0) < 1


def test_the_champion_is_loaded_unless_another_model_is_named(store: ArtifactStore, tmp_path: Path) -> None:
    artifacts = fill_store(tmp_path / "store")
    address = artifacts["training"].storage.url
    with pytest.raises(ArtifactMissingError, match="there is no trained model"):
        Recognizer.load(address, device="cpu")
    promote(ArtifactStore(address), artifacts["training"], because="in use")
    champion = Recognizer.load(address, device="cpu")
    assert (champion.model, champion.reason) == (artifacts["training"].ref, "the champion")
    assert Recognizer.load(address, "champion", device="cpu").model == champion.model
    with pytest.raises(ArtifactMissingError, match="there is no model 'ffff'"):
        Recognizer.load(address, "ffff", device="cpu")


def test_a_model_that_was_not_evaluated_embeds_but_has_no_threshold(tmp_path: Path, enrolled: Images) -> None:
    artifacts = fill_store(tmp_path / "store")
    store = ArtifactStore(artifacts["training"].storage.url)
    store.remove(artifacts["evaluation"].ref)
    recognizer = Recognizer.load(store, "latest", device="cpu")
    assert recognizer.embed(enrolled[0][0]).shape == (1, DIM)
    assert recognizer.identify(enrolled[0][0])[0].known is None
    with pytest.raises(NotEvaluatedError, match="was not evaluated, so it has no threshold"):
        recognizer.verify(enrolled[0][0], enrolled[1][0])


def test_what_is_not_an_image_is_named(recognizer: Recognizer, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    for given, words in (
        (tmp_path / "text.jpg", "text.jpg: not a JPEG"),
        (tmp_path / "missing.jpg", "missing.jpg: No such file"),
        (b"no image", "image 0: not a JPEG"),
        (np.zeros((0, 50, 3), np.uint8), r"give RGB pixels"),
        (np.zeros((112, 112, 3), np.float32), "image 0 is float32"),
        ([], "give at least one"),
    ):
        with pytest.raises(NotAnImageError, match=words):
            recognizer.embed(given)  # type: ignore[arg-type]
    with pytest.raises(GifError, match="known: codes, reranked, exhaustive"):
        recognizer.identify(tmp_path / "text.jpg", by="sight")  # type: ignore[arg-type]


@pytest.mark.usefixtures("detector")
def test_a_photograph_is_aligned_as_by_hand_and_doubts_are_logged(
    recognizer: Recognizer, photographs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = photographs / "strangers" / "Naomi_Watts_0001.jpg"
    [face] = read_faces(path)
    features_BD = recognizer.embed([path, face, face.pixels_HWC])
    assert features_BD[1:] == pytest.approx(features_BD[[0, 0]], abs=1e-6)
    assert not caplog.messages
    pixels = cv2.GaussianBlur(cv2.imread(str(path)), (0, 0), 4)
    recognizer.embed(np.concatenate([pixels, pixels], axis=1))
    assert "the largest face is used, which is one of 2 faces, blurred" in caplog.text
    with pytest.raises(NotAnImageError, match="image 1: no face was found"):
        recognizer.embed([path, np.zeros((50, 50, 3), np.uint8)])


def test_identify_digests_code_vectors_only_where_it_reads_all_of_them(
    store: ArtifactStore, enrolled: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: dict[str, int] = {}

    def count(path: Path) -> str:
        digested[path.name] = path.stat().st_size
        return sha256_of(path)

    sha256_of = digests.sha256_of
    monkeypatch.setattr(digests, "sha256_of", count)
    monkeypatch.setattr(digests, "_checked", set())
    recognizer = Recognizer.load(store, "latest", device="cpu")
    recognizer.identify(enrolled[0][0], by="reranked")
    assert {"backbone.safetensors", "head.safetensors", "codes.duckdb"} <= digested.keys()
    assert "code_vectors.safetensors" not in digested
    recognizer.identify(enrolled[0][0], by="exhaustive")
    assert digested["code_vectors.safetensors"] > 0
