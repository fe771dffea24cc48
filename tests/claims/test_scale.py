"""Claims about heads where the identities of a step are few among many, in the benchmark's world of vectors.

TAR at FAR 1e-3 on identities that were not trained on; every head trains the same network on the same data for as many
steps. `benchmarks/scale.py` has larger worlds, more seeds and faces.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gif_core.tokenization import code_shape, draw_codes
from schemas.tokenization import TokenizationConfig
from schemas.training import TrainingConfig

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from pair_histograms import count_pairs, measure
from worlds import Split, VectorWorld, mean_vectors, split_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("one_thread")]
IDENTITIES, HELD_OUT, IMAGES, SEEDS = 4000, 800, 6, 2
COMMON = {"optimizer": "adamw", "learning_rate": 1e-2, "weight_decay": 1e-4, "batch_size": 256, "epochs": 6}
COSFACE = {"head": "cosface", "scale": 16, "margin": 0.2}


@cache
def open_world() -> tuple[VectorWorld, Split]:
    world = VectorWorld(IDENTITIES + HELD_OUT, IMAGES)
    return world, split_world(world, HELD_OUT, seed=0)


@pytest.fixture(scope="module")
def tar() -> Callable[..., float]:
    """The mean over seeds for some settings, each computed once."""
    world, split = open_world()

    @cache
    def mean(settings: tuple[tuple[str, object], ...], codes: str, vectors: str) -> float:
        config = TrainingConfig.model_validate(COMMON | dict(settings))
        given = split if codes == "structured" else replace(split, codes=atomic_codes(len(split.vectors)))
        given = (
            given
            if vectors == "separated"
            else replace(given, vectors=mean_vectors(world, split.train, split.labels).numpy())
        )
        found = [count_pairs(world.train(given, config, seed), split.test_labels) for seed in range(SEEDS)]
        return float(np.mean([measure(each, (1e-3,), np.ones((1, HELD_OUT)))[0, 1] for each in found]))

    def run(codes: str = "structured", vectors: str = "separated", **settings: object) -> float:
        found = mean(tuple(sorted(settings.items())), codes, vectors)
        print(f"{settings} {codes} {vectors}: TAR {100 * found:.1f} %", file=sys.stderr)  # noqa: T201
        return found

    return run


def atomic_codes(people: int) -> np.ndarray:
    return draw_codes(people, code_shape(people, TokenizationConfig()), seed=0)


def test_few_negatives_of_many_suffice(tar: Callable[..., float]) -> None:
    """With a tenth of the rows (128 drawn and the batch's 256), at least 95 % of what all rows give."""
    few, every = tar(code_vectors="living", negatives=128), tar(code_vectors="living", negatives=IDENTITIES)
    assert few > 0.95 * every


def test_with_few_rows_of_many_it_is_above_margin_softmax_over_all_rows(tar: Callable[..., float]) -> None:
    assert tar(code_vectors="living", negatives=512) > tar(**COSFACE)


def test_margin_softmax_over_all_rows_that_starts_at_the_code_vectors_is_hardly_better(
    tar: Callable[..., float],
) -> None:
    """By less than a twentieth."""
    assert tar(code_vectors="living", negatives=512) > 0.95 * tar(**COSFACE, rows_from="code_vectors")


def test_a_map_helps_and_rows_that_learn_help_more(tar: Callable[..., float]) -> None:
    frozen, mapped, living = (tar(code_vectors=kind, negatives=512) for kind in ("frozen", "mapped", "living"))
    assert frozen < mapped < living


def test_starting_at_the_code_vectors_helps_margin_softmax_too(tar: Callable[..., float]) -> None:
    assert tar(**COSFACE, rows_from="code_vectors") > tar(**COSFACE)


def test_structured_codes_beat_atomic_codes_with_the_code_loss_alone(tar: Callable[..., float]) -> None:
    assert tar(negatives=0, gamma=0.0) > tar("atomic", negatives=0, gamma=0.0)


def test_separated_code_vectors_beat_the_encoders_under_the_papers_own_loss(tar: Callable[..., float]) -> None:
    assert tar(negatives=0) > tar(vectors="encoder", negatives=0)
