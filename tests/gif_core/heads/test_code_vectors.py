"""Code vectors that learn: what a step moves, by how much, and what stays."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gif_core.heads import Head, build_head, code_vectors
from gif_core.heads.code_vectors import FrozenVectors, LivingVectors
from gif_core.heads.gif import GifHead, draw_identities
from gif_core.runtime import create_matrix, map_matrix
from schemas.training import TrainingConfig
from tests.gif_core.heads.test_gif import IDENTITIES, make_batch, make_code_vectors, make_codes, slow_contrast

LIVING = TrainingConfig(
    code_vectors="living", negatives=4, code_weight=0.0, row_rate=0.1, alignment_scale=8.0, alignment_margin=0.1
)


def make_living(vectors: np.ndarray | None = None) -> GifHead:
    head = build_head(LIVING, make_codes(), make_code_vectors() if vectors is None else vectors)
    assert isinstance(head, GifHead)
    assert isinstance(head.vectors, LivingVectors)
    return head


def rows(head: GifHead) -> np.ndarray:
    return head.state_dict()["vectors.weight_MD"].numpy().copy()


def take_step(head: GifHead, step: int, *, moves: bool = True) -> None:
    features, labels = make_batch()
    head.begin_step(labels, step)
    head(features, labels).loss.backward()
    optimizer = head.row_optimizer()
    assert optimizer is not None
    if moves:
        optimizer.step()
    head.end_step()


def used_in(step: int) -> set[int]:
    drawn = draw_identities(IDENTITIES, LIVING.negatives, seed=0, step=step)
    return {*make_batch()[1].tolist(), *drawn.tolist()}


def test_a_step_moves_the_rows_in_use_and_no_others() -> None:
    head = make_living()
    before = rows(head)
    take_step(head, 0)
    moved = np.flatnonzero((rows(head) != before).any(axis=1))
    assert set(moved.tolist()) == used_in(0)
    assert len(moved) < IDENTITIES


def test_the_first_move_is_of_the_learning_rate_and_along_the_gradient_on_the_sphere() -> None:
    head, (features, labels) = make_living(), make_batch()
    before = torch.from_numpy(rows(head)).double().requires_grad_()
    assert not head.map_out_WD.any(), "the map is still the identity"
    numbers = F.normalize(features.double(), dim=1)
    used = sorted(used_in(0))
    logits = 8.0 * (numbers @ before[used].T)
    places = torch.tensor([used.index(label) for label in labels.tolist()])
    logits[torch.arange(len(labels)), places] -= 8.0 * 0.1
    F.cross_entropy(logits, places).backward()
    assert before.grad is not None
    take_step(head, 0)
    for row in used:
        h, gradient = before[row].detach(), before.grad[row]
        tangent = F.normalize(gradient - (gradient @ h) * h, dim=0)
        expected = F.normalize(h - LIVING.row_rate * tangent, dim=0)
        np.testing.assert_allclose(rows(head)[row], expected, atol=1e-5)


def test_the_loss_is_that_of_the_moved_rows() -> None:
    head, (features, labels) = make_living(), make_batch()
    take_step(head, 0)
    head.begin_step(labels, 1)
    vectors = rows(head).astype(np.float64)
    expected = slow_contrast(vectors, features.double().numpy(), labels.numpy(), used_in(1), 8.0, 0.1)
    assert head(features, labels).metrics["loss_alignment"].item() == pytest.approx(expected, rel=1e-5)


def test_rows_that_have_moved_often_move_less_and_stay_of_unit_length() -> None:
    head, angles = make_living(), []
    for step in range(6):
        before = rows(head)
        take_step(head, step)
        row = int(make_batch()[1][0])
        angles.append(float(np.linalg.norm(rows(head)[row] - before[row])))
    assert angles == sorted(angles, reverse=True)
    np.testing.assert_allclose(np.linalg.norm(rows(head), axis=1), 1.0, atol=1e-6)


def test_a_skipped_step_leaves_rows_and_the_state_of_their_optimizer_as_they_were() -> None:
    head = make_living()
    take_step(head, 0)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    take_step(head, 1, moves=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def test_of_a_mapped_file_only_a_private_copy_changes(tmp_path: Path) -> None:
    create_matrix(tmp_path / "h", "code_vectors", *make_code_vectors().shape)[:] = make_code_vectors()
    mapped, in_memory = make_living(map_matrix(tmp_path / "h", "code_vectors")), make_living()
    for head in (mapped, in_memory):
        head.load_state_dict(in_memory.state_dict())
        take_step(head, 0)
    np.testing.assert_array_equal(rows(mapped), rows(in_memory))
    assert (rows(mapped) != make_code_vectors()).any()
    np.testing.assert_array_equal(map_matrix(tmp_path / "h", "code_vectors"), make_code_vectors())


def test_all_rows_stay_in_host_memory_when_the_head_moves_to_a_device() -> None:
    head = make_living().to("meta")
    assert head.map_in_DW.device.type == head.vectors.sampled_SD.device.type == "meta"  # type: ignore[union-attr]
    assert head.get_buffer("vectors.weight_MD").device.type == "cpu"
    assert head.get_buffer("vectors.squares_M").device.type == "cpu"


def test_one_number_per_row_is_all_that_the_optimizer_remembers() -> None:
    state = make_living().state_dict()
    sizes = {name: state[name].numel() for name in make_living().row_tensors()}
    assert sizes == {"vectors.weight_MD": make_code_vectors().size, "vectors.squares_M": IDENTITIES}


@pytest.mark.parametrize(("negatives", "mapped"), [(IDENTITIES - 1, True), (IDENTITIES, False)])
def test_living_vectors_go_through_the_shared_map_where_a_step_does_not_use_all_of_them(
    negatives: int, mapped: bool
) -> None:
    head = build_head(TrainingConfig(code_vectors="living", negatives=negatives), make_codes(), make_code_vectors())
    assert ("map_in_DW" in head.state_dict()) == mapped


@pytest.mark.parametrize("kind", ["living", "mapped"])
def test_rows_that_are_read_ahead_are_bit_for_bit_those_that_are_read_in_the_step(kind: str) -> None:
    """Also rows that the step before changes, after a skipped step, and after one that nobody has prepared."""
    config = LIVING.model_copy(update={"code_vectors": kind})
    plain, ahead = (build_head(config, make_codes(), make_code_vectors()) for _ in range(2))
    assert isinstance(ahead, GifHead)
    ahead.load_state_dict(plain.state_dict())
    ahead.vectors.read_ahead(torch.device("cpu"))
    features = make_batch()[0]
    labels = [
        torch.from_numpy(np.random.default_rng(step).permutation(IDENTITIES)[: len(features)]) for step in range(9)
    ]
    for step in range(8):
        if step != 4:
            ahead.prepare_step(labels[step + 1], step + 1)
        losses = [learn(head, features, labels[step], step, moves=step != 6) for head in (plain, ahead)]
        assert losses[0] == losses[1], step
    assert all(torch.equal(tensor, ahead.state_dict()[name]) for name, tensor in plain.state_dict().items())


def learn(head: Head, features: torch.Tensor, labels: torch.Tensor, step: int, *, moves: bool) -> float:
    head.begin_step(labels, step)
    loss = head(features, labels).loss
    loss.backward()
    if moves and (optimizer := head.row_optimizer()):
        optimizer.step()
    head.end_step()
    return loss.item()


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device that holds all rows as a GPU does; it computes on the CPU."""
    monkeypatch.setattr(code_vectors, "runs_behind", lambda _: True)
    return torch.device("cpu")


@pytest.mark.parametrize(("precision", "apart"), [(torch.float16, 5e-5), (torch.bfloat16, 4e-4)])
def test_half_precision_takes_half_the_memory_and_rounds_cosines(
    on_a_gpu: torch.device, precision: torch.dtype, apart: float
) -> None:
    vectors = np.random.default_rng(0).normal(size=(100_000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    frozen, labels = FrozenVectors(vectors), torch.arange(0, len(vectors), 7)
    frozen.hold(on_a_gpu, memory=vectors.nbytes / 2, precision=precision)
    assert frozen._held_MD is not None
    assert frozen._held_MD.nbytes == vectors.nbytes / 2
    read = frozen.read(labels, on_a_gpu)
    assert read.dtype == torch.float32
    exact = torch.from_numpy(vectors)[labels]
    direction = F.normalize(exact[:50] + exact[50:100], dim=1)
    assert 0 < (direction @ read.T - direction @ exact.T).abs().mean() < apart


@pytest.mark.parametrize("precision", [torch.float32, torch.float16, torch.bfloat16])
def test_vectors_that_do_not_fit_in_their_precision_are_read_ahead(
    on_a_gpu: torch.device, precision: torch.dtype
) -> None:
    frozen = FrozenVectors(make_code_vectors())
    frozen.hold(on_a_gpu, memory=precision.itemsize * make_code_vectors().size - 1, precision=precision)
    assert frozen._held_MD is None
    assert frozen.ahead is not None


def test_vectors_that_learn_are_held_in_full_precision(on_a_gpu: torch.device) -> None:
    head = make_living()
    head.hold_rows(on_a_gpu, 1e9, torch.float16)
    assert head.vectors.ahead is None
    assert head.state_dict()["vectors.weight_MD"].dtype == torch.float32
    assert np.array_equal(rows(head), make_code_vectors())


def test_the_loss_of_vectors_in_half_precision_is_that_of_all_precision_but_for_rounding(
    on_a_gpu: torch.device,
) -> None:
    config, (features, labels) = LIVING.model_copy(update={"code_vectors": "mapped"}), make_batch()
    losses = {}
    for precision in (torch.float32, torch.float16, torch.bfloat16):
        head = build_head(config, make_codes(), make_code_vectors())
        head.hold_rows(on_a_gpu, 1e9, precision)
        head.begin_step(labels, 0)
        losses[precision] = head(features, labels).loss.item()
    assert losses[torch.float16] == pytest.approx(losses[torch.float32], rel=1e-3)
    assert losses[torch.bfloat16] == pytest.approx(losses[torch.float32], rel=1e-2)
    assert len(set(losses.values())) == 3
