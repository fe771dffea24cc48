from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gif_core.backbones import embed_images, features
from gif_core.evaluation import raw_pixels
from gif_core.evaluation.raw_pixels import pixel_distances
from gif_core.protocols import Pairs, draw_pairs

CPU = torch.device("cpu")


@dataclass
class StoredFaces:
    images: np.ndarray
    labels_N: np.ndarray

    def load(self, indices: np.ndarray) -> np.ndarray:
        return self.images[indices]


class Corners(nn.Module):
    """Features that tell left from right: four pixels of the image, of any length."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        assert not self.training
        return torch.stack([images_BCHW[:, c, y, 0] for c in (0, 1) for y in (0, 5)], dim=1)


def make_faces(images: int = 11) -> StoredFaces:
    pixels = np.random.default_rng(0).integers(0, 256, size=(images, 112, 112, 3), dtype=np.uint8)
    return StoredFaces(pixels, np.arange(images))


def make_labels() -> np.ndarray:
    """Identities of 1 to 30 images, in no order."""
    labels = np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 31, size=40))
    return np.random.default_rng(1).permutation(labels)


def unordered(pairs: Pairs) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}


def test_pairs_are_distinct_and_what_they_are_called() -> None:
    labels = make_labels()
    pairs = draw_pairs(labels, pairs=1500, seed=0, folds=10)
    assert len(pairs) == 3000
    assert np.array_equal(labels[pairs.left] == labels[pairs.right], pairs.same)
    assert len(unordered(pairs)) == 3000
    assert (pairs.left != pairs.right).all()


@pytest.mark.parametrize("folds", [2, 10, 7])
def test_every_fold_holds_as_many_same_as_different_pairs(folds: int) -> None:
    pairs = draw_pairs(make_labels(), pairs=1003, seed=0, folds=folds)
    assert len(pairs) == 2 * (1003 // folds * folds)
    for same in np.array_split(pairs.same, folds):
        assert same.sum() * 2 == len(same)


def test_pairs_depend_on_the_seed_alone() -> None:
    labels = make_labels()
    first, again, other = (draw_pairs(labels, pairs=500, seed=seed, folds=10) for seed in (0, 0, 1))
    assert np.array_equal(first.left, again.left)
    assert np.array_equal(first.right, again.right)
    assert len(unordered(first) & unordered(other)) < 0.5 * len(first)


def test_all_pairs_are_found_when_more_are_asked_for() -> None:
    labels = np.array([7, 7, 7, 7, 7, 3, 3])
    pairs = draw_pairs(labels, pairs=10_000, seed=0, folds=2)
    assert len(pairs) == 20
    assert len(unordered(pairs)) == 20
    different = {frozenset((a, b)) for a in range(5) for b in (5, 6)}
    assert {p for p in unordered(pairs) if len({labels[i] for i in p}) == 2} == different


def test_frequent_identities_do_not_outweigh_the_others() -> None:
    labels = np.repeat(np.arange(20), [100] + [6] * 19)
    pairs = draw_pairs(labels, pairs=200, seed=0, folds=10)
    drawn = np.bincount(labels[pairs.left[pairs.same]], minlength=20)
    assert drawn.tolist() == [10] * 20


def test_different_pairs_cover_the_identities_evenly() -> None:
    labels = np.repeat(np.arange(20), 10)
    pairs = draw_pairs(labels, pairs=900, seed=0, folds=10)
    identities = np.concatenate([labels[pairs.left[~pairs.same]], labels[pairs.right[~pairs.same]]])
    assert 60 < np.bincount(identities).min() <= np.bincount(identities).max() < 125


def test_one_identity_is_refused() -> None:
    with pytest.raises(ValueError, match="two identities, got 1"):
        draw_pairs(np.zeros(30, dtype=np.int64), pairs=10, seed=0, folds=10)


def test_single_images_are_refused() -> None:
    with pytest.raises(ValueError, match="an identity with at least two images"):
        draw_pairs(np.arange(30), pairs=10, seed=0, folds=10)


def test_too_few_pairs_for_the_folds_are_refused() -> None:
    with pytest.raises(ValueError, match="3 same and 6 different pairs are too few for 10 folds"):
        draw_pairs(np.array([0, 0, 0, 1, 2]), pairs=6, seed=0, folds=10)


@pytest.mark.parametrize("flip", [True, False])
def test_features_are_the_normalised_sum_with_the_mirror(flip: bool) -> None:
    faces, indices = make_faces(), np.array([4, 0, 9, 9, 2])
    features = np.concatenate(list(embed_images(Corners(), faces, indices, flip=flip, device=CPU, batch_size=2)))
    pixels = (faces.images[indices].astype(np.float64) - 127.5) / 127.5
    expected = np.stack([pixels[:, y, 0, c] for c in (0, 1) for y in (0, 5)], axis=1)
    if flip:
        expected += np.stack([pixels[:, y, 111, c] for c in (0, 1) for y in (0, 5)], axis=1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_read_only_images_and_reversed_channels_are_embedded() -> None:
    class Mapped(StoredFaces):
        def load(self, indices: np.ndarray) -> np.ndarray:
            self.images.setflags(write=False)
            return self.images[: len(indices)]

    faces = make_faces()
    reversed_channels = StoredFaces(faces.images[..., ::-1], faces.labels_N)
    for stored in (reversed_channels, Mapped(faces.images, faces.labels_N)):
        (features,) = embed_images(Corners(), stored, np.arange(3), flip=False, device=CPU)
        assert features.shape == (3, 4)


def test_embedding_gives_the_model_back_in_its_mode() -> None:
    for training in (True, False):
        model = Corners().train(training)
        chunks = embed_images(model, make_faces(), np.arange(5), flip=True, device=CPU, batch_size=2)
        next(chunks)
        chunks.close()
        assert model.training is training


def pair_up(left: list[int], right: list[int]) -> Pairs:
    return Pairs(np.array(left), np.array(right), np.zeros(len(left), np.bool_))


def test_raw_pixels_are_compared_by_their_cosine() -> None:
    faces = make_faces()
    left, right = faces.load(np.array([3, 1])).reshape(2, -1).astype(float)
    cosine = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
    assert pixel_distances(faces, pair_up([3], [1])) == [pytest.approx(2 - 2 * cosine)]


def test_raw_pixels_of_a_few_pairs_at_a_time_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    class Counted(StoredFaces):
        def load(self, indices: np.ndarray) -> np.ndarray:
            loaded.append(len(indices))
            return super().load(indices)

    faces, pairs = make_faces(), pair_up([0, 1, 2, 3, 4, 5, 10], [9, 8, 7, 6, 0, 0, 10])
    whole = pixel_distances(faces, pairs)
    monkeypatch.setattr(raw_pixels, "PAIRS_AT_ONCE", 2)
    assert np.array_equal(pixel_distances(Counted(faces.images, faces.labels_N), pairs), whole)
    assert loaded == [4, 4, 3, 1]


def test_black_images_have_a_finite_distance() -> None:
    faces = StoredFaces(np.zeros((1, 112, 112, 3), dtype=np.uint8), np.zeros(1, dtype=np.int64))
    assert pixel_distances(faces, pair_up([0], [0])) == [0]


def test_image_and_mirror_go_through_the_network_together_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    faces, seen = make_faces(), []

    class Watched(Corners):
        def forward(self, images_BCHW: Tensor) -> Tensor:
            seen.append(len(images_BCHW))
            return super().forward(images_BCHW)

    def embed() -> np.ndarray:
        chunks = embed_images(Watched(), faces, np.arange(11), flip=True, device=CPU, batch_size=4)
        return np.concatenate(list(chunks))

    apart = embed()
    monkeypatch.setattr(features, "runs_behind", lambda _: True)
    together = embed()
    assert seen == [4, 4, 4, 4, 3, 3, 8, 8, 6]
    np.testing.assert_array_equal(apart, together)
