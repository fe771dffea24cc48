"""One optimizer step: forward, backward, guard rails, update."""

# Shapes: B images of this process in a batch, H height, W width, C channels, D dimensions.

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from gif_core.heads import Head, HeadOutput, PairHead
from gif_core.images import normalize_pixels
from gif_core.runtime import ProcessGroup, postponed_interrupts
from gif_core.training.average import move_average
from gif_core.training.buffers import KeptBuffers
from gif_core.training.data.loader import Batch
from gif_core.training.distillation import TEACHER_WEIGHT, distillation_loss
from gif_core.training.oom import memory_explained
from gif_core.training.schedules import learning_rate, row_learning_rate
from gif_core.training.update import GuardedUpdate
from schemas.errors import GifError
from schemas.training import TrainingConfig

CHANCE: Final = 508
"""The second part of the seed of what is random in the network, such as dropped paths."""
Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: Final[dict[Precision, torch.dtype]] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class TrainingDivergedError(GifError, RuntimeError):
    """The loss or its gradient is no longer a finite number."""


@dataclass(slots=True)
class TrainingState:
    """All that a training is at one moment, besides its settings; a checkpoint holds just this."""

    model: nn.Module
    head: Head
    optimizer: Optimizer
    scaler: GradScaler
    """Of fp16; it does nothing in other precisions."""
    step: int = 0
    """Optimizer steps taken, or skipped."""
    whole: bool = True
    """False while a step changes it; then it is no state to keep."""
    average: nn.Module | None = None
    """Moving average of the model, for heads that compare with it."""

    @property
    def published(self) -> nn.Module:
        """The network to evaluate: the model, or its average for heads whose authors do so."""
        if self.average is not None and isinstance(self.head, PairHead) and self.head.publishes_average:
            return self.average
        return self.model


class Stepper:
    """Takes steps, and sums up their metrics on the device until they are asked for."""

    def __init__(
        self,
        state: TrainingState,
        config: TrainingConfig,
        group: ProcessGroup,
        *,
        seed: int,
        steps: int,
        compile: bool = False,
    ) -> None:
        """With several processes the backbone's gradients are averaged while the backward pass goes on."""
        self.state, self.config, self.group, self.seed, self.steps = state, config, group, seed, steps
        network: nn.Module = torch.compile(state.model) if compile else state.model  # type: ignore[assignment]
        self.network = self._share(network) if group.size > 1 else network
        self.buffers = KeptBuffers(nn.ModuleList(filter(None, (state.model, state.average))), state.head)
        rows = state.head.row_optimizer()
        self.optimizers = [state.optimizer, rows] if rows else [state.optimizer]
        self.teacher: nn.Module | None = None
        self.update = GuardedUpdate(self.optimizers, state.scaler, self.buffers, group.device)
        self.is_random = state.head.draws_random_numbers or getattr(state.model, "draws_random_numbers", True)
        self.sums: dict[str, Tensor] = {}
        self.last: dict[str, Tensor] = {}
        self.count = self.images = 0

    def take(self, batch: Batch) -> None:
        """One optimizer step on this process's share of a batch.

        Whoever interrupts it finds the state of before the step, or that of after it.
        """
        rate = self._set_learning_rate()
        what = f"a step on {len(batch.labels_B)} images"
        with memory_explained(what, self.config, self.group.device), self._undone_when_left():
            metrics = self._find_gradient(batch)
            self._update(metrics)
        self.sums = _add(self.sums, metrics | {"learning_rate": torch.tensor(rate)})
        self.last = metrics
        self.count += 1
        self.images += len(batch.labels_B)

    def prepare(self, following: Batch) -> None:
        """Let the head begin to read what the batch needs that follows the next one."""
        self.state.head.prepare_step(following.labels_B, self.state.step + 1)

    def collect(self) -> tuple[dict[str, float], int]:
        """Mean metrics of the steps since the last call, over all processes, and how many images they saw.

        `skipped` is the number of steps, which is the same in every process. Here the host waits for the device, and
        learns whether the training has diverged.
        """
        values = [*self.sums.values(), self.update.in_a_row, self.update.longest]
        stacked = self.group.sum(torch.stack([value.to(self.group.device) for value in values]))
        *means, in_a_row, longest = (stacked / (self.count * self.group.size)).tolist()
        images = self.images * self.group.size
        named = dict(zip(self.sums, means, strict=True))
        named["skipped"] = float(round(named["skipped"] * self.count))
        self._check_divergence(round(in_a_row * self.count), round(longest * self.count))
        self.sums, self.count, self.images = {}, 0, 0
        return named, images

    @contextmanager
    def _undone_when_left(self) -> Iterator[None]:
        """Restore the state of before the step if an interrupt ends it early; after an error it is not used again."""
        step = self.state.step
        self.buffers.keep()
        try:
            yield
        except Exception:
            raise
        except BaseException:
            if self.state.whole and self.state.step == step:
                self.buffers.restore()
                self.state.head.end_step()
            raise

    def _find_gradient(self, batch: Batch) -> dict[str, Tensor]:
        self.state.model.train(not self._is_frozen)
        self.state.optimizer.zero_grad(set_to_none=True)
        with postponed_interrupts():
            self.state.head.begin_step(batch.labels_B, self.state.step)
        with self._randomness() if self.is_random else nullcontext():
            metrics = self._accumulate(batch)
        return metrics | {"gradient_norm": self._clip(metrics["loss"])}

    def _accumulate(self, batch: Batch) -> dict[str, Tensor]:
        """Forward and backward of the batch's parts; the mean metrics of all."""
        parts = self.config.accumulation
        pairs = zip(batch.images_BHWC.tensor_split(parts), batch.labels_B.tensor_split(parts), strict=True)
        totals: dict[str, Tensor] = {}
        for number, (images_BHWC, labels_B) in enumerate(pairs, start=1):
            weight = len(labels_B) / len(batch.labels_B)
            with self._alone() if number < parts else nullcontext():
                metrics = self._backward(images_BHWC, labels_B, weight)
            totals = _add(totals, {name: weight * value for name, value in metrics.items()})
        return totals

    def _backward(self, images_BHWC: Tensor, labels_B: Tensor, weight: float) -> dict[str, Tensor]:
        device, precision = self.group.device, self.config.precision
        images_BCHW = normalize_pixels(images_BHWC, device)
        with torch.autocast(device.type, PRECISIONS[precision], enabled=precision != "fp32"):
            features_BD, keys_BD = self._embed(images_BCHW)
        output = self._loss(features_BD, keys_BD, labels_B)
        if self.state.head.sample_negatives:
            own_BD = self.state.head.rows_of(labels_B)
            loss_samples = self.state.head.sample_negatives(features_BD, labels_B, own_BD)
            output = output.plus("loss_samples", loss_samples, self.config.sample_weight)
        if self.teacher is not None:
            loss_teacher = distillation_loss(features_BD, self.teacher, images_BCHW)
            output = output.plus("loss_teacher", loss_teacher, self.config.teacher_weight or TEACHER_WEIGHT)
        self.state.scaler.scale(output.loss * weight).backward()  # type: ignore[no-untyped-call]
        return {"loss": output.loss.detach(), **output.metrics}

    def _embed(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features of the network and, for heads that compare with it, of its average."""
        average, head = self.state.average, self.state.head
        if average is None:
            with torch.set_grad_enabled(not self._is_frozen):
                return self.network(images_BCHW), None
        apart = isinstance(head, PairHead) and head.keys_apart
        queries, keys = (slice(0, None, 2), slice(1, None, 2)) if apart else (slice(None), slice(None))
        with torch.no_grad():
            keys_BD = average(images_BCHW[keys])
        return self.network(images_BCHW[queries]), keys_BD

    def _loss(self, features_BD: Tensor, keys_BD: Tensor | None, labels_B: Tensor) -> HeadOutput:
        head = self.state.head
        if keys_BD is not None and isinstance(head, PairHead):
            return head.compare(features_BD, keys_BD, labels_B)
        output: HeadOutput = head(features_BD, labels_B)
        return output

    @property
    def _is_frozen(self) -> bool:
        """Whether only the head learns in this step: in the first epochs, if `training.freeze` is set."""
        return self.state.step < (self.config.freeze or 0) * self.steps // self.config.epochs

    def _clip(self, loss: Tensor) -> Tensor:
        """The norm of the whole gradient; that of `clip_scope` is no longer than configured afterwards.

        The loss is averaged too: all processes are to come to the same decision about it.
        """
        head = self.state.head
        self.group.average([loss] if head.sharded else [*_gradients(head), loss])
        for optimizer in self.optimizers:
            self.state.scaler.unscale_(optimizer)
        square = _square_norm(_gradients(self.state.model), self.group)
        own = _square_norm(_gradients(head), self.group)
        norm = (square + (self.group.sum(own) if head.sharded else own)).sqrt()
        if self.config.clip_norm is not None:
            alone = self.config.clip_scope == "backbone"
            factor = (self.config.clip_norm / ((square.sqrt() if alone else norm) + 1e-6)).clamp(max=1.0)
            clipped = _gradients(self.state.model)
            torch._foreach_mul_(clipped if alone else [*clipped, *_gradients(head)], factor)
        return norm.detach()

    def _update(self, metrics: dict[str, Tensor]) -> None:
        """The optimizer's step; none when its gradient is not finite."""
        state = self.state
        finite = torch.isfinite(metrics["loss"] + metrics["gradient_norm"])
        with postponed_interrupts():
            state.whole = False
            metrics["skipped"] = self.update.apply(finite)
            state.head.end_step()
            if state.average is not None:
                move_average(state.average, state.model, self.config.average_decay_of_head)
            state.step += 1
            state.whole = True

    def _set_learning_rate(self) -> float:
        """The rate of the trainer's optimizer; rows that the head moves have one of their own."""
        step, config = self.state.step, self.config
        rate = learning_rate(step, config, steps=self.steps, peak=config.learning_rate)
        rates = (rate, row_learning_rate(step, config, steps=self.steps))
        for optimizer, own in zip(self.optimizers, rates, strict=False):
            for group in optimizer.param_groups:
                group["lr"] = own * group.get("factor", 1.0)
        return rate

    def _share(self, network: nn.Module) -> nn.Module:
        gpus = [self.group.device.index] if self.group.device.type == "cuda" else None
        return DistributedDataParallel(
            network, device_ids=gpus, forward_sync_buffers=False, gradient_as_bucket_view=True
        )

    def _alone(self) -> AbstractContextManager[None]:
        """Keep gradients to this process for now: the last part sends the sum of all."""
        return self.network.no_sync() if isinstance(self.network, DistributedDataParallel) else nullcontext()

    def _randomness(self) -> "_SeededRandom":
        numbers = np.random.SeedSequence([self.seed, CHANCE, self.state.step, self.group.rank])
        return _SeededRandom(int(numbers.generate_state(1, np.uint64)[0] >> np.uint64(1)), self.group.device)

    def _check_divergence(self, in_a_row: int, longest: int) -> None:
        if longest < self.config.max_skipped:
            return
        where = f"the last of them step {self.state.step}" if in_a_row else f"before step {self.state.step}"
        named = {name: value for name, value in self.last.items() if name.startswith(("loss", "grad"))}
        parts = ", ".join(f"{name} {float(value):.4g}" for name, value in named.items())
        raise TrainingDivergedError(
            f"training diverged: {longest} steps in a row, {where}, "
            f"gave no finite gradient ({parts}). Lower training.learning_rate (here {self.config.learning_rate:.4g}), "
            "raise training.warmup_steps, set training.clip_norm, or lower training.scale and training.gamma"
            + ("; bf16 overflows less easily than fp16" if self.config.precision == "fp16" else "")
        )


class _SeededRandom:
    """Random numbers of the device from a seed of its own; the generators of other code are left as they were."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.fork = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

    def __enter__(self) -> None:
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: object) -> None:
        self.fork.__exit__(*error)  # type: ignore[arg-type]


def _add(sums: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: sums[name] + value if name in sums else value for name, value in more.items()}


def _gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def _square_norm(gradients: list[Tensor], group: ProcessGroup) -> Tensor:
    if not gradients:
        return torch.zeros((), device=group.device)
    return torch.stack(torch._foreach_norm(gradients)).square().sum()
