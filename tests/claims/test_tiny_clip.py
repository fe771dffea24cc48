"""tiny-clip behaves like CLIP: zero-shot attributes, vectors in a cone, similar identities as neighbours."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gif_core.embedding.encoders import OpenClipEncoder, zero_shot
from gif_core.embedding.encoders.tiny_clip import TEST_SEED
from gif_core.evaluation import verify_drawn
from gif_core.synthetic import describe, draw_face, identity_attributes
from schemas.embedding import EmbeddingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
IDENTITIES = 300
SAMPLES = 3


@pytest.fixture(scope="module")
def encoder() -> OpenClipEncoder:
    return OpenClipEncoder(EmbeddingConfig(model="tiny-clip", pretrained="synthetic"), torch.device("cpu"))


@pytest.fixture(scope="module")
def vectors(encoder: OpenClipEncoder) -> NDArray[np.float32]:
    """Identity vectors (Eq. 3) of identities outside its training."""
    images = [draw_face(TEST_SEED, identity, sample) for identity in range(IDENTITIES) for sample in range(SAMPLES)]
    parts = [encoder.encode(np.stack(images[start : start + 90])) for start in range(0, len(images), 90)]
    means = torch.cat(parts).unflatten(0, (IDENTITIES, SAMPLES)).mean(dim=1)
    return torch.nn.functional.normalize(means, dim=1).numpy()


def test_zero_shot_attributes_of_unseen_identities_are_clearly_above_chance(encoder: OpenClipEncoder) -> None:
    found = zero_shot(encoder, 400)
    assert set(found) == {"hair_colour", "beard", "glasses", "skin_tone"}
    for attribute, result in found.items():
        assert result.recall > result.chance + 0.35, attribute
        assert result.accuracy > result.commonest + 0.2, attribute


def test_identity_vectors_lie_in_a_cone(vectors: NDArray[np.float32]) -> None:
    cosines = (vectors @ vectors.T)[~np.eye(IDENTITIES, dtype=bool)]
    assert cosines.mean() > 0.2
    uniform = 3 / np.sqrt(vectors.shape[1])
    assert cosines.mean() > uniform / 2


@pytest.mark.parametrize("attribute", ["hair_colour", "skin_tone", "hair_length", "glasses", "beard"])
def test_nearest_identities_share_attributes_far_more_often_than_chance(
    vectors: NDArray[np.float32], attribute: str
) -> None:
    words = np.array([describe(identity_attributes(TEST_SEED, identity))[attribute] for identity in range(IDENTITIES)])
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    nearest = np.argsort(-similarity, axis=1)[:, :5]
    agree = (words[nearest] == words[:, None]).mean()
    shares = np.unique(words, return_counts=True)[1] / IDENTITIES
    chance = float((shares**2).sum())
    assert agree - chance > 0.3 * (1 - chance)


def test_it_knows_what_a_face_looks_like_and_not_well_whose_it_is(encoder: OpenClipEncoder) -> None:
    assert 0.75 < verify_drawn(encoder, TEST_SEED, 100) < 0.9
