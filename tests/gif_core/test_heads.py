import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gif_core.heads.gif import GifHead

IDENTITIES, DIM, LENGTH, RANGE, BATCH = 20, 12, 3, 3, 7
SCALE, GAMMA = 8.0, 2.5


def make_codes() -> np.ndarray:
    numbers = np.arange(IDENTITIES)
    return np.stack([numbers // RANGE ** (LENGTH - 1 - j) % RANGE for j in range(LENGTH)], axis=1)


def make_code_vectors() -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(IDENTITIES, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_head(*, scale: float = SCALE, gamma: float = GAMMA) -> GifHead:
    torch.manual_seed(0)
    head = GifHead(make_codes(), make_code_vectors(), scale=scale, gamma=gamma)
    with torch.no_grad():
        head.bias1_LD.normal_()
        head.bias2_LD.normal_()
    return head


def make_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(BATCH, DIM, generator=generator) * 5
    return features, torch.randint(0, IDENTITIES, (BATCH,), generator=generator)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / math.sqrt(sum(x * x for x in vector))


def slow_code_loss(head: GifHead, features: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Eq. 7 as printed: a sum over tokens of 1/l times a softmax over values, image by image."""
    parts = {name: value.detach().double().numpy() for name, value in head.named_parameters()}
    codes = make_codes()
    loss, right = 0.0, np.zeros((LENGTH, len(labels)), dtype=bool)
    for i, label in enumerate(labels):
        for j in range(LENGTH):
            x = unit(features[i])
            x = np.maximum(x @ parts["hidden1_LDD"][j] + parts["bias1_LD"][j], 0)
            x = np.maximum(x @ parts["hidden2_LDD"][j] + parts["bias2_LD"][j], 0)
            cosines = [unit(x) @ unit(row) for row in parts["classifiers_LVD"][j]]
            exponentials = [math.exp(SCALE * cosine) for cosine in cosines]
            loss -= math.log(exponentials[codes[label, j]] / sum(exponentials)) / LENGTH / len(labels)
            right[j, i] = np.argmax(cosines) == codes[label, j]
    return loss, right


def slow_alignments(features: np.ndarray, labels: np.ndarray) -> list[float]:
    vectors = make_code_vectors().astype(np.float64)
    return [float(unit(row) @ vectors[label]) for row, label in zip(features, labels, strict=True)]


def test_losses_and_metrics_equal_the_printed_equations() -> None:
    head, (features, labels) = make_head(), make_batch()
    output = head(features, labels)
    loss_codes, right = slow_code_loss(head, features.double().numpy(), labels.numpy())
    alignments = slow_alignments(features.double().numpy(), labels.numpy())
    loss_alignment = sum(0.5 * (a - 1) ** 2 for a in alignments) / BATCH
    expected = {
        "loss_codes": loss_codes,
        "loss_alignment": loss_alignment,
        "alignment": sum(alignments) / BATCH,
        "token_accuracy/1": right[0].mean(),
        "token_accuracy/2": right[1].mean(),
        "token_accuracy/3": right[2].mean(),
        "code_accuracy": right.all(axis=0).mean(),
    }
    assert {name: value.item() for name, value in output.metrics.items()} == pytest.approx(expected, rel=1e-5)
    assert output.loss.item() == pytest.approx(loss_codes + GAMMA * loss_alignment, rel=1e-5)


def test_gradient_of_alignment_is_equation_nine() -> None:
    """d L_AR / d z = (z·h - 1) h, seen through the normalisation of z, batch mean."""
    head, (features, labels) = make_head(), make_batch()
    features.requires_grad_()
    output = head(features, labels)
    output.loss.backward()
    without = make_head(gamma=0.0)
    again = features.detach().clone().requires_grad_()
    without(again, labels).loss.backward()
    assert features.grad is not None
    assert again.grad is not None
    pulled = (features.grad - again.grad).numpy()
    for i, label in enumerate(labels.tolist()):
        row = features[i].detach().double().numpy()
        z, h = unit(row), make_code_vectors()[label].astype(np.float64)
        ambient = GAMMA * (z @ h - 1) * h / BATCH
        tangent = (ambient - (ambient @ z) * z) / np.linalg.norm(row)
        np.testing.assert_allclose(pulled[i], tangent, atol=1e-6)


def test_code_vectors_are_neither_learned_nor_saved_nor_changed() -> None:
    head, (features, labels) = make_head(), make_batch()
    before = head.code_vectors_ND.copy()
    head(features.requires_grad_(), labels).loss.backward()
    shapes = {tuple(parameter.shape) for parameter in head.parameters()}
    assert shapes == {(LENGTH, DIM, DIM), (LENGTH, DIM), (LENGTH, RANGE, DIM)}
    assert set(head.state_dict()) == {name for name, _ in head.named_parameters()}
    np.testing.assert_array_equal(head.code_vectors_ND, before)


def test_every_parameter_is_learned() -> None:
    head, (features, labels) = make_head(), make_batch()
    head(features, labels).loss.backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_read_only_mapped_code_vectors_give_the_same_loss(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", make_code_vectors())
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    features, labels = make_batch()
    in_memory = make_head()
    on_disk = GifHead(make_codes(), mapped, scale=SCALE, gamma=GAMMA)
    on_disk.load_state_dict(in_memory.state_dict())
    assert torch.equal(on_disk(features, labels).loss, in_memory(features, labels).loss)


def test_autocast_does_not_change_the_loss() -> None:
    head, (features, labels) = make_head(), make_batch()
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        inside = head(features, labels).loss
    assert torch.equal(inside, head(features, labels).loss)


def test_large_scale_stays_finite_for_half_precision_features() -> None:
    features, labels = make_batch()
    features = (features * 1000).half().requires_grad_()
    output = make_head(scale=64.0)(features, labels)
    output.loss.backward()
    assert torch.isfinite(output.loss)
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


def test_codes_and_vectors_of_other_numbers_of_identities_are_refused() -> None:
    with pytest.raises(ValueError, match="20 codes do not fit 19 code vectors"):
        GifHead(make_codes(), make_code_vectors()[:-1], scale=1.0, gamma=1.0)
