"""Training of the backbone on fixed identity codes (Eq. 2, 7, 8, 10; the last part of Algorithm 1)."""

# Shapes: N identities, I images in all, B images in a batch, H height, W width, C channels, D dimensions,
# L tokens of a code.

import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from gif_core.backbones.building import build_backbone
from gif_core.batches import epoch_shape, plan_batches
from gif_core.faces import Faces
from gif_core.heads.base import Head, HeadOutput
from gif_core.heads.building import build_head
from gif_core.images import normalize_pixels
from gif_core.loader import Batch, load_batches
from schemas.errors import GifError
from schemas.training import TrainingConfig

INITIALISATION: Final = 501
"""The second part of the seed of the first weights."""


class TrainingDivergedError(GifError, RuntimeError):
    """The loss is no longer a finite number."""


@dataclass(slots=True)
class TrainingState:
    """All that a training run is at one moment; live objects, which the next step changes."""

    model: nn.Module
    head: Head
    optimizer: Optimizer
    scheduler: LRScheduler
    step: int = 0
    """Optimizer steps taken."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What one optimizer step did."""

    step: int
    """Counted from 1."""
    steps: int
    """Of the whole run."""
    epoch: int
    """Counted from 0."""
    metrics: dict[str, float]
    images_per_second: float
    """Of this step, the wait for its images included."""
    state: TrainingState


def train(
    faces: Faces,
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    config: TrainingConfig,
    *,
    seed: int,
    device: torch.device,
) -> Generator[TrainingStep, None, None]:
    """Minimise L_C + gamma · L_AR (Eq. 10) over the faces, and yield after every optimizer step.

    The label of an image is its row in `codes_NL` and `code_vectors_ND`. On a CPU the same seed gives the
    same weights. Closing the iterator ends the processes that read ahead, as many as `faces` has workers.
    """
    _check_labels(faces.labels_N, len(codes_NL))
    steps = config.epochs * epoch_shape(len(faces.labels_N), config.batch_size)[0]
    state = build_state(codes_NL, code_vectors_ND, config, steps=steps, seed=seed, device=device)
    return _run(state, faces, config, steps=steps, seed=seed, device=device)


def build_state(
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    config: TrainingConfig,
    *,
    steps: int,
    seed: int,
    device: torch.device,
) -> TrainingState:
    """Model, head and optimizer before the first step; initialised on the CPU, so alike on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_initialisation_seed(seed))
        model = build_backbone(config.backbone, code_vectors_ND.shape[1])
        head = build_head(config, codes_NL, code_vectors_ND, seed=seed)
    model, head = model.to(device), head.to(device)
    optimizer = build_optimizer([*model.parameters(), *head.parameters()], config)
    return TrainingState(model, head, optimizer, build_scheduler(optimizer, steps, config.warmup_steps))


def build_optimizer(parameters: list[nn.Parameter], config: TrainingConfig) -> Optimizer:
    """SGD or AdamW with one weight decay for everything learned, as the paper states its recipe."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    if config.optimizer == "adamw":
        return AdamW(learned, lr=config.learning_rate, weight_decay=config.weight_decay)
    return SGD(learned, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay)


def build_scheduler(optimizer: Optimizer, steps: int, warmup_steps: int) -> LRScheduler:
    """Linear warm-up to the full rate, then a cosine that is 0 after the last step."""
    if warmup_steps >= steps:
        raise ValueError(f"warmup_steps={warmup_steps} must be fewer than the {steps} steps of this training")

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))

    return LambdaLR(optimizer, factor)


def _run(
    state: TrainingState,
    faces: Faces,
    config: TrainingConfig,
    *,
    steps: int,
    seed: int,
    device: torch.device,
) -> Generator[TrainingStep, None, None]:
    plans = plan_batches(len(faces), config, seed=seed, start_step=state.step)
    with closing(load_batches(faces, plans, workers=faces.workers, pin=device.type == "cuda")) as batches:
        started = time.perf_counter()
        for batch in batches:
            metrics = _take_step(state, batch, device)
            speed = len(batch.labels_B) / (time.perf_counter() - started)
            yield TrainingStep(state.step, steps, batch.epoch, metrics, speed, state)
            started = time.perf_counter()


def _take_step(state: TrainingState, batch: Batch, device: torch.device) -> dict[str, float]:
    state.model.train()
    features_BD = state.model(normalize_pixels(batch.images_BHWC, device))
    state.head.begin_step(batch.labels_B, state.step)
    output: HeadOutput = state.head(features_BD, batch.labels_B)
    metrics = _to_floats(output)
    metrics["learning_rate"] = float(state.scheduler.get_last_lr()[0])
    if not math.isfinite(metrics["loss"]):
        raise TrainingDivergedError(_explain_divergence(state.step + 1, metrics))
    state.optimizer.zero_grad(set_to_none=True)
    output.loss.backward()  # type: ignore[no-untyped-call]
    state.optimizer.step()
    state.scheduler.step()
    state.step += 1
    return metrics


def _to_floats(output: HeadOutput) -> dict[str, float]:
    """All metrics in one transfer from the device."""
    scalars = {"loss": output.loss.detach()} | output.metrics
    return dict(zip(scalars, torch.stack(list(scalars.values())).tolist(), strict=True))


def _explain_divergence(step: int, metrics: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {metrics[name]:.4g}" for name in metrics if name.startswith("loss"))
    return (
        f"training diverged at step {step}: {parts}. Lower training.learning_rate "
        f"(here {metrics['learning_rate']:.4g}), raise training.warmup_steps, "
        "or lower training.scale and training.gamma"
    )


def _initialisation_seed(seed: int) -> int:
    return int(np.random.SeedSequence([seed, INITIALISATION]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check_labels(labels_I: NDArray[np.int64], num_identities: int) -> None:
    if len(labels_I) and not 0 <= labels_I.min() <= labels_I.max() < num_identities:
        raise ValueError(f"labels {labels_I.min()} to {labels_I.max()} do not fit {num_identities} identity codes")
