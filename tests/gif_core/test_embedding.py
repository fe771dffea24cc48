from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gif_core.embedding import embed_identities, identity_vectors, vectors_of
from gif_core.encoders import OpenClipEncoder
from gif_core.encoders.open_clip_encoder import check_weights
from schemas.embedding import EmbeddingConfig

TINY = EmbeddingConfig(model="tiny-clip", pretrained="random")


class FewFaces:
    """Eleven random images of three people."""

    labels_N = np.repeat(np.arange(3), [5, 2, 4])

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        images = np.random.default_rng(0).integers(0, 256, (11, 112, 112, 3), dtype=np.uint8)
        return images[indices]


def embed(batch_size: int) -> NDArray[np.float32]:
    encoder = OpenClipEncoder(TINY, torch.device("cpu"), workers=2)
    *_, step = embed_identities(encoder, FewFaces(), batch_size=batch_size)
    return vectors_of(identity_vectors(step))


def test_an_identitys_vector_is_the_normalised_mean_of_its_normalised_features() -> None:
    encoder = OpenClipEncoder(TINY, torch.device("cpu"))
    features = encoder.encode(FewFaces().load(np.arange(11))).double().numpy()
    assert np.allclose(np.linalg.norm(features, axis=1), 1)
    for batch_size in (3, 11):
        vectors = embed(batch_size)
        for person, rows in enumerate((slice(0, 5), slice(5, 7), slice(7, 11))):
            mean = features[rows].mean(axis=0)
            assert np.allclose(vectors[person], mean / np.linalg.norm(mean), atol=1e-5)


def test_cohesion_is_the_mean_cosine_of_a_persons_faces_to_their_mean() -> None:
    encoder = OpenClipEncoder(TINY, torch.device("cpu"))
    features = encoder.encode(FewFaces().load(np.arange(11))).double().numpy()
    *_, step = embed_identities(encoder, FewFaces(), batch_size=4)
    table = identity_vectors(step)
    first = features[:5].mean(axis=0)
    expected = (features[:5] @ (first / np.linalg.norm(first))).mean()
    assert table["cohesion"][0].as_py() == pytest.approx(expected, abs=1e-6)
    assert table["num_samples"].to_pylist() == [5, 2, 4]


def test_untrained_weights_are_the_same_every_time_and_leave_the_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = embed(4)
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(first, embed(4))


def test_an_unknown_architecture_or_tag_gets_the_list_of_known_ones() -> None:
    with pytest.raises(ValueError, match=r"open_clip has no such model; it has .*ViT-B-32"):
        check_weights(EmbeddingConfig(model="ViT-B-99"))
    with pytest.raises(ValueError, match=r"neither a file nor a tag of ViT-B-32; tags are: random, openai"):
        check_weights(EmbeddingConfig(model="ViT-B-32", pretrained="nowhere.pt"))


def test_a_local_checkpoint_is_used(tmp_path: Path) -> None:
    trained = OpenClipEncoder(TINY, torch.device("cpu"))
    with torch.no_grad():
        trained.model.visual.proj.add_(0.1)
    torch.save(trained.model.state_dict(), tmp_path / "clip.pt")
    config = TINY.model_copy(update={"pretrained": str(tmp_path / "clip.pt")})
    images = FewFaces().load(np.arange(2))
    loaded = OpenClipEncoder(config, torch.device("cpu"))
    assert torch.equal(loaded.encode(images), trained.encode(images))
