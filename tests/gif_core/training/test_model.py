"""What a training has learned, read back for use."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from gif_core.heads import build_head
from gif_core.heads.gif import GifHead
from gif_core.training import (
    NoTokenHeadsError,
    check_has_token_heads,
    check_reads_codes,
    learned_codes,
    load_token_heads,
)
from schemas.training import TrainingConfig

LENGTH, VOCAB_SIZE, DIM = 3, 4, 8


def describe(folder: Path, config: TrainingConfig) -> Path:
    shape = {"length": LENGTH, "vocab_size": VOCAB_SIZE, "embedding_dim": DIM}
    folder.mkdir(exist_ok=True)
    path = folder / "model.json"
    path.write_text(json.dumps({"head": config.head, "settings": config.model_dump(mode="json"), **shape}))
    return path


@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(),
        TrainingConfig(scale=7, hidden_layers=1, map_width=5),
        TrainingConfig(negatives=0, hidden_layers=0),
    ],
    ids=["default", "mapped", "paper"],
)
def test_heads_that_are_read_back_see_codes_and_place_vectors_as_in_training(
    tmp_path: Path, config: TrainingConfig
) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((9, DIM)).astype(np.float32)
    trained = build_head(config, rng.integers(VOCAB_SIZE, size=(9, LENGTH)), vectors, num_values=VOCAB_SIZE)
    assert isinstance(trained, GifHead)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.normal_()
    kept = {name: tensor for name, tensor in trained.state_dict().items() if not name.startswith("vectors.")}
    save_file(kept, tmp_path / "head.safetensors")
    found = load_token_heads(tmp_path / "head.safetensors", describe(tmp_path, config))
    z = F.normalize(torch.randn(6, DIM), dim=1)
    with torch.no_grad():
        assert torch.equal(found.token_logits(z), trained.token_logits(z))
        placed = trained.place(torch.from_numpy(vectors))
        assert torch.equal(found.place(torch.from_numpy(vectors)), placed)


def test_a_model_whose_head_reads_no_codes_is_refused(tmp_path: Path) -> None:
    check_reads_codes(describe(tmp_path, TrainingConfig()))
    with pytest.raises(NoTokenHeadsError, match="head cosface, which does not read codes: identification needs"):
        check_reads_codes(describe(tmp_path, TrainingConfig(head="cosface")))


def test_a_model_that_was_not_taught_codes_is_refused_but_for_what_needs_none(tmp_path: Path) -> None:
    description = describe(tmp_path, TrainingConfig(code_weight=0))
    assert not learned_codes(description)
    assert learned_codes(describe(tmp_path / "other", TrainingConfig(code_weight=0.1)))
    with pytest.raises(NoTokenHeadsError, match=r"training.code_weight=0, which teaches .* --by exhaustive"):
        check_reads_codes(description)
    check_has_token_heads(description)
