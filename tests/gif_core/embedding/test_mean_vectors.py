from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.embedding import Part, PartSums, Summary, embed_part, identity_vectors, plan_parts, vectors_of
from gif_core.embedding import mean_vectors as embedding
from gif_core.embedding.encoders import build_encoder
from gif_core.images import Faces
from gif_core.synthetic import draw_jpeg
from schemas.artifacts import StoredFile
from schemas.embedding import EmbeddingConfig

CPU = torch.device("cpu")
TINY = EmbeddingConfig(model="tiny-clip", pretrained="random")
COUNTS = [5, 1, 4, 9, 2, 3]
"""Faces of each person; the fourth is spread over several record batches."""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory, write_shard: Callable[..., Path]) -> Path:
    identities = np.repeat(np.arange(len(COUNTS)), COUNTS).tolist()
    rows = [(person, f"{person}/{row}.jpg", draw_jpeg(0, person, row)) for row, person in enumerate(identities)]
    return write_shard(tmp_path_factory.mktemp("embedding") / "identities-00000.arrow", rows, 4)


@pytest.fixture(scope="module")
def features(shard: Path) -> NDArray[np.float64]:
    """Of every face, encoded alone."""
    faces, encoder = Faces([shard]), build_encoder(TINY, CPU)
    return np.concatenate([encoder.encode(faces.load(np.array([row]))).double().numpy() for row in range(len(faces))])


def embed(shard: Path, pieces: int, *, batch_size: int = 3, workers: int = 1) -> list[PartSums]:
    encoder, faces = build_encoder(TINY, CPU), Faces([shard])
    parts = [Part("", shard.name, piece, pieces) for piece in range(pieces)]
    return [embed_part(encoder, faces, part, batch_size=batch_size, workers=workers) for part in parts]


def together(parts: list[PartSums], identities: int = len(COUNTS)) -> pa.Table:
    return pa.concat_tables(identity_vectors([part.span for part in parts], parts.__getitem__, identities))


@pytest.mark.parametrize("pieces", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("window", [1, 4, 8192])
def test_an_identitys_vector_is_the_normalised_mean_of_its_normalised_features(
    shard: Path, features: NDArray[np.float64], pieces: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "WINDOW", window)
    table = together(embed(shard, pieces))
    vectors = vectors_of(table)
    assert vectors.dtype == np.float32
    assert table["identity_id"].to_pylist() == list(range(len(COUNTS)))
    assert table["num_samples"].to_pylist() == COUNTS
    for person, rows in enumerate(np.split(features, np.cumsum(COUNTS)[:-1])):
        mean = rows.mean(axis=0)
        assert np.allclose(vectors[person], mean / np.linalg.norm(mean), atol=1e-5)
        cohesion = (rows @ mean / np.linalg.norm(mean)).mean()
        assert table["cohesion"][person].as_py() == pytest.approx(cohesion, abs=1e-5)


def test_the_number_of_threads_changes_no_bit(shard: Path) -> None:
    one = embed(shard, 2, workers=1)
    for workers in (2, 5):
        for expected, found in zip(one, embed(shard, 2, workers=workers), strict=True):
            assert expected.to_bytes() == found.to_bytes()


def test_torchs_own_number_of_threads_stays(shard: Path) -> None:
    before = torch.get_num_threads()
    embed(shard, 1, workers=2)
    assert torch.get_num_threads() == before


def test_every_face_is_in_one_part_and_no_other(shard: Path) -> None:
    for pieces in (1, 2, 5, 6, 11):
        counts = np.zeros(len(COUNTS), int)
        for part in embed(shard, pieces):
            counts[part.ids_P] += part.counts_P
        assert counts.tolist() == COUNTS


def test_a_part_is_the_same_after_it_was_stored(shard: Path) -> None:
    part = embed(shard, 2)[1]
    again = PartSums.from_bytes(part.to_bytes())
    assert np.array_equal(again.ids_P, part.ids_P)
    assert np.array_equal(again.sums_PD, part.sums_PD)
    assert again.sums_PD.dtype == np.float64


def stored(name: str, digit: str, size: int) -> StoredFile:
    return StoredFile(name=name, path=f"a/{name}", size=size, sha256=digit * 64)


def test_parts_are_planned_by_size_and_known_by_content() -> None:
    first, second = stored("identities-00000.arrow", "a", 100), stored("identities-00001.arrow", "b", 30)
    plan = plan_parts([first, second], {"model": "x"}, 25)
    assert [(part.shard[-7], part.piece, part.pieces) for part in plan] == [
        ("0", 0, 4), ("0", 1, 4), ("0", 2, 4), ("0", 3, 4), ("1", 0, 1),
    ]  # fmt: skip
    assert len({part.key for part in plan}) == 5
    moved = plan_parts([second.model_copy(update={"name": "identities-00000.arrow"})], {"model": "x"}, 25)
    assert moved[0].key == plan[4].key, "the same content elsewhere is the same part"
    assert {part.key for part in plan_parts([first, second], {"model": "y"}, 25)}.isdisjoint({p.key for p in plan})
    assert plan_parts([first, second, stored("c", "c", 9)], {"model": "x"}, 25)[:5] == plan


class Constant:
    """An encoder that always says the same."""

    device = CPU

    def __init__(self, features: list[list[float]]) -> None:
        self.features = torch.tensor(features)

    def encode(self, images_BHWC: NDArray[np.uint8]) -> Tensor:
        return self.features[: len(images_BHWC)]


def test_features_that_are_not_numbers_are_refused_with_the_image(shard: Path) -> None:
    part = Part("", "", 0, 1)
    with pytest.raises(ValueError, match=r"the encoder's features of 0/1\.jpg are not finite"):
        embed_part(Constant([[1.0], [float("nan")], [1.0]]), Faces([shard]), part, batch_size=3)


def test_an_identity_without_a_face_or_a_direction_is_refused() -> None:
    one = PartSums(np.array([0, 2]), np.array([1, 1]), np.eye(2))
    with pytest.raises(ValueError, match="identity 1 has no face"):
        together([one], 3)
    opposite = PartSums(np.array([0]), np.array([2]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="the features of identity 0 cancel each other out"):
        together([opposite], 1)


def table_of(vectors: NDArray[np.float64], counts: list[int], cohesion: list[float], start: int = 0) -> pa.Table:
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return embedding._table(start, np.array(counts), unit, np.array(cohesion))


def test_the_summary_has_the_mean_cosine_over_all_pairs_and_the_cohesion() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 4)) + 1
    cohesion = [0.9, 0.5, 1.0, 0.7, 0.3, 0.8, 0.6]
    summary = Summary()
    summary.add(table_of(vectors[:3], [2, 3, 1], cohesion[:3]))
    summary.add(table_of(vectors[3:], [4, 2, 2, 2], cohesion[3:], start=3))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(7, dtype=bool)]
    assert summary.metrics["mean_cosine"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert summary.metrics["mean_cohesion"] == pytest.approx(np.mean(cohesion))
    assert summary.metrics["least_cohesion"] == pytest.approx(0.3)
    assert (summary.metrics["images"], summary.metrics["dimensions"]) == (16, 4)


def test_the_least_cohesive_come_first_and_single_images_have_no_cohesion_to_speak_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding, "LEAST_COHESIVE", 3)
    summary = Summary()
    summary.add(table_of(np.ones((4, 2)), [2, 1, 3, 2], [0.9, 0.1, 0.5, 0.7]))
    summary.add(table_of(np.ones((2, 2)), [2, 2], [0.6, 0.8], start=4))
    table = summary.least_cohesive({2: "two", 3: "three", 4: "four"})
    assert table["identity_id"].to_pylist() == [2, 4, 3]
    assert table["label"].to_pylist() == ["two", "four", "three"]
    assert table["num_samples"].to_pylist() == [3, 2, 2]
