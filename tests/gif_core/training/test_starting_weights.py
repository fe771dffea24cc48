"""Training from the weights of an earlier model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gif_core.runtime import ProcessGroup
from gif_core.training.checkpoints import load_weights
from gif_core.training.step import TrainingState
from gif_core.training.trainer import build_state
from schemas.errors import GifError
from schemas.training import TrainingConfig, TrainingStart

ALONE = ProcessGroup(torch.device("cpu"))
DIM = 16


def make_state(identities: int, seed: int, **settings: object) -> TrainingState:
    codes = np.stack([np.arange(identities) // 4, np.arange(identities) % 4], axis=1)
    config = TrainingConfig.model_validate(
        {"backbone": "iresnet_tiny", "code_vectors": "mapped", "map_width": 8, **settings}
    )
    vectors = np.random.default_rng(0).normal(size=(identities, DIM)).astype(np.float32)
    return build_state(codes, vectors, config, seed=seed, group=ALONE, num_values=4)


def save(state: TrainingState, folder: Path) -> tuple[Path, Path]:
    paths = folder / "backbone.safetensors", folder / "head.safetensors"
    for module, path in zip((state.model, state.head), paths, strict=True):
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, path)
    return paths


def tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_backbone_and_token_heads_carry_over_to_more_identities(tmp_path: Path) -> None:
    backbone, head = save(make_state(10, seed=1), tmp_path)
    state = make_state(14, seed=2)
    load_weights(state, TrainingStart(backbone=str(backbone), head=str(head)))
    for module, path in ((state.model, backbone), (state.head, head)):
        stored = load_file(path)
        assert stored.keys() == module.state_dict().keys()
        assert all(torch.equal(tensor, stored[name]) for name, tensor in module.state_dict().items())
    kept = [value for values in state.optimizer.state.values() for value in values.values()]
    assert not any(value.any() for value in kept), "the optimizer begins anew"


def test_without_its_head_the_backbone_alone_carries_over(tmp_path: Path) -> None:
    backbone, _ = save(make_state(10, seed=1), tmp_path)
    state = make_state(14, seed=2)
    before = tensors(state.head)
    load_weights(state, TrainingStart(backbone=str(backbone)))
    assert all(torch.equal(tensor, load_file(backbone)[name]) for name, tensor in state.model.state_dict().items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.head.state_dict().items())


@pytest.mark.parametrize("head", ["arcface", "partial_fc"])
def test_rows_of_known_identities_carry_over_and_those_of_new_identities_stay_as_drawn(
    head: str, tmp_path: Path
) -> None:
    backbone, rows = save(make_state(10, seed=1, head=head), tmp_path)
    state = make_state(14, seed=2, head=head)
    before = tensors(state.head)["weight_MD"]
    load_weights(state, TrainingStart(backbone=str(backbone), head=str(rows)))
    after = state.head.state_dict()["weight_MD"]
    assert torch.equal(after[:10], load_file(rows)["weight_MD"])
    assert torch.equal(after[10:], before[10:])


def test_weights_of_another_network_are_refused_with_the_first_that_do_not_fit(tmp_path: Path) -> None:
    backbone, head = save(make_state(10, seed=1, map_width=4), tmp_path)
    with pytest.raises(GifError, match=r"the head of the model to start from is another: map_in_DW, map_out_WD"):
        load_weights(make_state(10, seed=2), TrainingStart(backbone=str(backbone), head=str(head)))
    with pytest.raises(GifError, match=r"the backbone of the model to start from is another.*training\.start_from"):
        load_weights(make_state(10, seed=2, backbone="mobilefacenet"), TrainingStart(backbone=str(backbone)))
