"""Checkpoints of a training: when they are written, what interrupts leave, and which of them count."""

import math
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gif_core.training import open_checkpoints, run_job
from gif_core.training import trainer as training
from schemas.files import BACKBONE_FILE
from tests.gif_core.training.training_jobs import (
    ALONE,
    STEPS,
    assert_same_weights,
    files,
    make_job,
    result,
    undisturbed,
)

__all__ = ["files", "undisturbed"]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts here, also where tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def raise_interrupt_at(step: int) -> Callable[..., None]:
    """Something to call once in every step, which interrupts that one, counted from 1."""
    calls = count(1)

    def call(*_: object) -> None:
        if next(calls) == step:
            signal.raise_signal(signal.SIGINT)

    return call


def in_the_forward_pass(call: Callable[..., None]) -> Any:
    """After batch normalisation has learned from the batch."""
    return register_module_forward_hook(lambda module, *_: call() if isinstance(module, nn.BatchNorm1d) else None)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(
    ("place", "settings", "reached"),
    [
        (in_the_forward_pass, {}, 6),
        (in_the_forward_pass, {"head": "partial_fc", "sample_rate": 0.4}, 6),
        (register_optimizer_step_pre_hook, {"code_vectors": "mapped"}, 7),
        (register_optimizer_step_pre_hook, {}, 4),
    ],
    ids=[
        "in the forward pass",
        "with rows lent to the optimizer",
        "in the optimizer's step",
        "in that of code vectors, which doubles the calls",
    ],
)
def test_an_interrupt_in_the_middle_of_a_step_leaves_a_checkpoint_from_which_it_ends_where_it_would_have(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[..., Any],
    settings: dict[str, object],
    reached: int,
) -> None:
    short = {"epochs": 2, **settings}
    undisturbed, job = (make_job(files, tmp_path / name, short, checkpoint_steps=None) for name in "ab")
    list(run_job(undisturbed, ALONE))
    monkeypatch.setattr(training, "MOST_REPORTS", 1)
    hook = place(raise_interrupt_at(7))
    with pytest.raises(KeyboardInterrupt):
        list(run_job(job, ALONE))
    hook.remove()
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert checkpoint.state.step == reached
    list(run_job(job, ALONE))
    assert_same_weights(result(job), result(undisturbed), job, exactly=True)


def test_whoever_is_told_to_stop_stops_after_the_step_and_not_after_the_next_report(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_REPORTS", 1)
    job, asked = make_job(files, tmp_path, checkpoint_steps=None), count(1)
    assert [report.step for report in run_job(job, ALONE, lambda: next(asked) == 6)] == [4]
    checkpoint = open_checkpoints(job).newest()
    assert checkpoint is not None
    assert (checkpoint.state.step, checkpoint.state.values["steps"]) == (6, STEPS)


@pytest.mark.parametrize(
    ("due", "kept"), [({"checkpoint_steps": 3}, [3, 6, 8]), ({"checkpoint_seconds": 0}, [*range(1, 9)])]
)
def test_a_checkpoint_is_written_when_it_is_due_and_not_at_the_next_report(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, due: dict[str, object], kept: list[int]
) -> None:
    monkeypatch.setattr(training, "MOST_REPORTS", 1)
    job = make_job(files, tmp_path, {"epochs": 2}, **{"checkpoint_steps": None, "checkpoints_kept": 10, **due})
    assert [report.step for report in run_job(job, ALONE)] == [4, 8]
    folders = (tmp_path / job.checkpoints).iterdir()
    assert sorted(int(folder.name.partition("-")[0]) for folder in folders) == kept


def test_the_metrics_of_a_skipped_step_are_told_again_as_they_were(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    overflow = register_module_forward_pre_hook(lambda _, given: (given[0] * float("inf"), *given[1:]))
    steps = run_job(job, ALONE)
    skipped = next(steps)
    overflow.remove()
    next(steps)
    steps.close()
    assert not math.isfinite(skipped.metrics["loss"])
    assert str(next(run_job(job, ALONE))) == str(skipped)


def test_only_the_newest_few_are_kept_and_a_damaged_one_is_passed_over(
    files: Path, tmp_path: Path, undisturbed: tuple[dict[str, Tensor], list[float]], caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    folders = sorted((tmp_path / job.checkpoints).iterdir())
    assert [int(folder.name.split("-")[0]) for folder in folders] == [18, 20]
    weights = folders[-1] / BACKBONE_FILE
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    newest = open_checkpoints(job).newest()
    assert newest is not None
    assert newest.state.step == 18
    assert "skipping the damaged checkpoint" in caplog.text
    list(run_job(job, ALONE))
    assert_same_weights(result(job), undisturbed[0], job, exactly=True)


def test_a_checkpoint_without_its_state_does_not_count(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    for state in (tmp_path / job.checkpoints).glob("*/state.json"):
        state.unlink()
    assert open_checkpoints(job).newest() is None


def test_checkpoints_hold_no_pickle(files: Path, tmp_path: Path) -> None:
    job = make_job(files, tmp_path)
    list(run_job(job, ALONE))
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}
