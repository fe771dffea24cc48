import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gif_core.heads import build_head
from gif_core.heads.gif import GifHead, draw_identities, weigh_tokens
from schemas.training import TrainingConfig

IDENTITIES, DIM, LENGTH, RANGE, BATCH = 20, 12, 3, 3, 7
SCALE, GAMMA = 8.0, 2.5
FROM_PAPER: dict[str, Any] = {
    "scale": SCALE,
    "gamma": GAMMA,
    "negatives": 0,
    "code_vectors": "frozen",
    "alignment_margin": 0,
}
MAPPED: dict[str, Any] = {"code_vectors": "mapped", "map_width": 9}


def make_codes() -> np.ndarray:
    numbers = np.arange(IDENTITIES)
    return np.stack([numbers // RANGE ** (LENGTH - 1 - j) % RANGE for j in range(LENGTH)], axis=1)


def make_code_vectors() -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(IDENTITIES, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def settings(**changed: Any) -> TrainingConfig:
    return TrainingConfig(**FROM_PAPER | changed)


def make_head(**changed: Any) -> GifHead:
    torch.manual_seed(0)
    head = GifHead(make_codes(), make_code_vectors(), settings(**changed), num_values=RANGE)
    with torch.no_grad():
        for bias_LD in head.bias_LD:
            bias_LD.normal_()
    return head


def make_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(BATCH, DIM, generator=generator) * 5
    return features, torch.randint(0, IDENTITIES, (BATCH,), generator=generator)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / math.sqrt(sum(x * x for x in vector))


def slow_code_loss(
    head: GifHead, features: np.ndarray, labels: np.ndarray, weights: list[float], margin: float = 0.0
) -> tuple[float, np.ndarray]:
    """Eq. 7 as printed: a sum over tokens of λ times a softmax over values, image by image."""
    parts = {name: value.detach().double().numpy() for name, value in head.named_parameters()}
    codes = make_codes()
    loss, right = 0.0, np.zeros((LENGTH, len(labels)), dtype=bool)
    for i, label in enumerate(labels):
        for j in range(LENGTH):
            x = unit(features[i])
            for layer in range(len(head.bias_LD)):
                x = np.maximum(x @ parts[f"hidden_LDD.{layer}"][j] + parts[f"bias_LD.{layer}"][j], 0)
            cosines = [unit(x) @ unit(row) for row in parts["classifiers_LVD"][j]]
            right[j, i] = np.argmax(cosines) == codes[label, j]
            cosines[codes[label, j]] -= margin
            exponentials = [math.exp(SCALE * cosine) for cosine in cosines]
            loss -= math.log(exponentials[codes[label, j]] / sum(exponentials)) * weights[j] / len(labels)
    return loss, right


def slow_alignments(features: np.ndarray, labels: np.ndarray) -> list[float]:
    vectors = make_code_vectors().astype(np.float64)
    return [float(unit(row) @ vectors[label]) for row, label in zip(features, labels, strict=True)]


def test_losses_and_metrics_equal_the_printed_equations() -> None:
    head, (features, labels) = make_head(), make_batch()
    output = head(features, labels)
    loss_codes, right = slow_code_loss(head, features.double().numpy(), labels.numpy(), [1 / LENGTH] * LENGTH)
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
    before = head.vectors.vectors_MD.copy()
    head(features.requires_grad_(), labels).loss.backward()
    shapes = {tuple(parameter.shape) for parameter in head.parameters()}
    assert shapes == {(LENGTH, DIM, DIM), (LENGTH, DIM), (LENGTH, RANGE, DIM)}
    assert set(head.state_dict()) == {name for name, _ in head.named_parameters()}
    np.testing.assert_array_equal(head.vectors.vectors_MD, before)


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
    on_disk = GifHead(make_codes(), mapped, settings(), num_values=RANGE)
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
        GifHead(make_codes(), make_code_vectors()[:-1], settings(), num_values=RANGE)


@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
def test_margin_depth_and_weights_of_tokens_are_as_defined(hidden_layers: int) -> None:
    head = make_head(hidden_layers=hidden_layers, margin=0.3, token_weights="increasing", code_weight=1.5, gamma=0.0)
    features, labels = make_batch()
    expected, right = slow_code_loss(head, features.double().numpy(), labels.numpy(), [1 / 6, 2 / 6, 3 / 6], margin=0.3)
    output = head(features, labels)
    assert output.metrics["loss_codes"].item() == pytest.approx(expected, rel=1e-5)
    assert output.loss.item() == pytest.approx(1.5 * expected, rel=1e-5)
    assert output.metrics["code_accuracy"].item() == pytest.approx(right.all(axis=0).mean())


def test_weights_of_tokens_sum_to_one_and_have_their_pattern() -> None:
    patterns = {name: weigh_tokens(name, 5).tolist() for name in ("uniform", "increasing", "decreasing", "gaussian")}
    assert [sum(weights) for weights in patterns.values()] == pytest.approx([1.0] * 4)
    assert patterns["uniform"] == pytest.approx([0.2] * 5)
    assert patterns["increasing"] == pytest.approx([1 / 15, 2 / 15, 3 / 15, 4 / 15, 5 / 15])
    assert patterns["decreasing"] == pytest.approx(patterns["increasing"][::-1])
    ratio = math.exp(-0.5 * (1 / (5 / 4)) ** 2)
    middle = patterns["gaussian"][2]
    assert patterns["gaussian"] == pytest.approx(
        [middle * ratio**4, middle * ratio, middle, middle * ratio, middle * ratio**4]
    )
    assert weigh_tokens("gaussian", 1).tolist() == [1.0]


def slow_contrast(
    vectors: np.ndarray, features: np.ndarray, labels: np.ndarray, used: set[int], scale: float, margin: float
) -> float:
    loss = 0.0
    for row, label in zip(features, labels, strict=True):
        own = math.exp(scale * (unit(row) @ vectors[label] - margin))
        others = sum(math.exp(scale * (unit(row) @ vectors[k])) for k in used if k != label)
        loss -= math.log(own / (own + others)) / len(labels)
    return loss


@pytest.mark.parametrize("negatives", [6, 1000])
def test_alignment_with_negatives_is_a_margin_softmax_over_the_code_vectors_in_use(negatives: int) -> None:
    head, (features, labels) = make_head(negatives=negatives, alignment_scale=12.0, alignment_margin=0.25), make_batch()
    head.begin_step(labels, step=3)
    output = head(features, labels)
    used = {*labels.tolist(), *draw_identities(IDENTITIES, negatives, seed=0, step=3).tolist()}
    vectors = make_code_vectors().astype(np.float64)
    expected = slow_contrast(vectors, features.double().numpy(), labels.numpy(), used, 12.0, 0.25)
    assert output.metrics["loss_alignment"].item() == pytest.approx(expected, rel=1e-5)
    total = output.metrics["loss_codes"].item() + GAMMA * expected
    assert output.loss.item() == pytest.approx(total, rel=1e-5)


def test_drawn_identities_are_a_function_of_seed_and_step_and_all_come_in_turn() -> None:
    first = draw_identities(100_000, 64, seed=5, step=0)
    assert len(set(first.tolist())) == 64
    np.testing.assert_array_equal(first, draw_identities(100_000, 64, seed=5, step=0))
    assert not np.array_equal(first, draw_identities(100_000, 64, seed=5, step=1))
    assert not np.array_equal(first, draw_identities(100_000, 64, seed=6, step=0))
    seen = np.concatenate([draw_identities(IDENTITIES, 4, seed=0, step=step) for step in range(100)])
    assert set(seen.tolist()) == set(range(IDENTITIES))


def test_a_batch_in_parts_has_the_mean_loss_of_the_whole() -> None:
    head, (features, labels) = make_head(negatives=5), make_batch()
    head.begin_step(labels, step=0)
    whole = head(features, labels).loss.item()
    parts = [head(features[part], labels[part]).loss.item() * len(labels[part]) for part in (slice(3), slice(3, BATCH))]
    assert sum(parts) / BATCH == pytest.approx(whole, rel=1e-6)


def test_negatives_without_a_begun_step_are_refused() -> None:
    with pytest.raises(RuntimeError, match="begin_step"):
        make_head(negatives=5)(*make_batch())


class CountedRows:
    """Stands for a mapped file of many rows: any row can be had, and which ones were asked for is kept."""

    def __init__(self, columns: int, dtype: type) -> None:
        self.shape, self.dtype, self.asked = (64_000_000, columns), dtype, 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        self.asked += len(rows)
        return np.ones((len(rows), self.shape[1]), dtype=self.dtype)


def test_a_step_among_64_million_identities_reads_the_rows_of_the_batch_and_of_the_negatives_alone() -> None:
    codes, vectors = CountedRows(LENGTH, np.int32), CountedRows(DIM, np.float32)
    head = GifHead(codes, vectors, settings(negatives=10), num_values=RANGE)  # type: ignore[arg-type]
    assert codes.asked == vectors.asked == 0
    features, _ = make_batch()
    labels = torch.arange(BATCH) * 9_000_000
    head.begin_step(labels, step=0)
    head(features, labels).loss.backward()
    assert (codes.asked, vectors.asked) == (BATCH, BATCH + 10)


def test_the_factory_passes_settings_and_seed_and_finds_the_vocab_size() -> None:
    config = TrainingConfig(negatives=4, map_width=5, hidden_layers=1)
    features, labels = make_batch()
    built = build_head(config, make_codes(), make_code_vectors(), seed=9)
    by_hand = GifHead(make_codes(), make_code_vectors(), config, num_values=RANGE, seed=9)
    by_hand.load_state_dict(built.state_dict())
    built.begin_step(labels, step=1)
    by_hand.begin_step(labels, step=1)
    assert torch.equal(built(features, labels).loss, by_hand(features, labels).loss)


def test_the_map_of_code_vectors_begins_as_the_identity_and_is_learned() -> None:
    features, labels = make_batch()
    frozen, mapped = make_head(negatives=1000), make_head(negatives=1000, **MAPPED)
    for head in (frozen, mapped):
        head.begin_step(labels, step=0)
    output = mapped(features, labels)
    expected = frozen(features, labels).metrics["loss_alignment"].item()
    assert output.metrics["loss_alignment"].item() == pytest.approx(expected, rel=1e-6)
    output.loss.backward()
    assert mapped.map_out_WD.grad is not None
    assert mapped.map_out_WD.grad.abs().sum() > 0


def test_mapped_code_vectors_are_as_defined_and_stand_in_for_the_frozen_ones() -> None:
    head, (features, labels) = make_head(negatives=1000, gamma=1.0, code_weight=0.0, **MAPPED), make_batch()
    with torch.no_grad():
        head.map_out_WD.normal_()
    weight_in, weight_out = head.map_in_DW.detach().numpy(), head.map_out_WD.detach().numpy()
    vectors = [unit(h + np.maximum(h @ weight_in, 0) @ weight_out) for h in make_code_vectors()]
    found = head.place(torch.from_numpy(make_code_vectors())).detach().numpy()
    np.testing.assert_allclose(found, vectors, atol=1e-5)
    without_map = settings(negatives=1000, gamma=1.0, code_weight=0.0)
    plain = GifHead(make_codes(), np.stack(vectors).astype(np.float32), without_map, num_values=RANGE)
    head.begin_step(labels, step=0)
    plain.begin_step(labels, step=0)
    assert head(features, labels).loss.item() == pytest.approx(plain(features, labels).loss.item(), rel=1e-5)


def test_without_negatives_code_vectors_are_frozen_and_nothing_else_is_accepted() -> None:
    assert TrainingConfig(negatives=0).code_vectors == "frozen"
    assert TrainingConfig(negatives=1).code_vectors != "frozen"
    with pytest.raises(ValueError, match=r"mapped code vectors need negatives.*frozen, as in the paper"):
        TrainingConfig(negatives=0, code_vectors="mapped")


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_share_of_the_gradient_of_the_codes_reaches_the_network_and_all_of_it_the_token_heads(share: float) -> None:
    def gradients(**changes: float) -> tuple[torch.Tensor, torch.Tensor]:
        head, (features, labels) = make_head(**changes), make_batch()
        features.requires_grad_()
        head(features, labels).loss.backward()
        assert features.grad is not None
        assert head.classifiers_LVD.grad is not None
        return features.grad, head.classifiers_LVD.grad

    of_codes, of_tokens = gradients(gamma=0.0)
    of_both, _ = gradients()
    reduced, still_of_tokens = gradients(code_gradient=share)
    torch.testing.assert_close(reduced, of_both - (1 - share) * of_codes)
    assert torch.equal(still_of_tokens, of_tokens)


def test_without_negatives_the_default_settings_give_the_head_of_the_paper() -> None:
    features, labels = make_batch()
    head = GifHead(make_codes(), make_code_vectors(), TrainingConfig(negatives=0, scale=SCALE), num_values=RANGE)
    numbers = features.double().numpy(), labels.numpy()
    loss_codes, _ = slow_code_loss(head, *numbers, [1 / LENGTH] * LENGTH)
    loss_alignment = sum(0.5 * (a - 1) ** 2 for a in slow_alignments(*numbers)) / BATCH
    assert head.config.hidden_layers == 2
    assert head(features, labels).loss.item() == pytest.approx(loss_codes + loss_alignment, rel=1e-5)
