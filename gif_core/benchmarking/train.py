"""The trainer, with its loader, its head and its guard rails, against the bare backbone."""

# Shapes: B images in a batch, H height, W width, C channels, D dimensions.

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gif_core.backbones import build_network
from gif_core.benchmarking.clock import Clock, seconds_of, seconds_per_call
from gif_core.benchmarking.inputs import draw_faces, draw_vectors, number_codes
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.peaks import find_peak, size_of_backbone
from gif_core.benchmarking.setting import Setting, code_dimension
from gif_core.benchmarking.timed_step import TimedStepper
from gif_core.images import Faces, normalize_pixels
from gif_core.runtime import ProcessGroup, tuned_kernels
from gif_core.training import begin_training
from gif_core.training.step import PRECISIONS
from gif_core.training.trainer import Training, build_optimizer
from schemas.benchmarks import BenchmarkResult
from schemas.training import TrainingConfig

WARM_UP: Final = 3
"""Steps before the first one that is measured."""
LEAST_STEPS: Final = 3
ENDLESS: Final = 10**9
"""Epochs: the clock ends the training."""
PASSES: Final = 3
"""A forward pass, and a backward pass of twice its operations."""


def bench_train(setting: Setting) -> BenchmarkResult:
    """Images per second of training, as a share of the backbone alone, with the time of a step by phases."""
    dim, workers, batch = code_dimension(setting.config), setting.config.execution.workers, setting.batch_size
    faces = draw_faces(setting.folder, max(8 * batch, 512), setting.identities, workers)
    config = setting.config.training.model_copy(
        update={"batch_size": batch, "epochs": ENDLESS, "learning_rate": 1e-4, "warmup_steps": 0}
    )
    bare = BareBackbone(config, dim, faces, setting.device)
    before = bare.seconds_of_step(setting.seconds / 4)
    with watched_memory(setting.device) as memory:
        steps = measure_steps(_begin(setting, faces, config, dim), setting.seconds / 2)
    seconds = (before + bare.seconds_of_step(setting.seconds / 4)) / 2
    flops = PASSES * size_of_backbone(config.backbone, dim).flops
    peak, source = find_peak(setting.device, config.precision)
    return setting.result(
        "train",
        f"{config.backbone} {config.head} {config.precision}",
        settings={"backbone": config.backbone, "precision": config.precision, "head": config.head, "batch": batch}
        | {"identities": setting.identities, "dimension": dim, "workers": workers},
        per_second=batch / steps.seconds,
        share=seconds / steps.seconds,
        reference=f"the bare {config.backbone}",
        flops_per_second=flops * batch / steps.seconds,
        peak_flops=peak,
        peak_source=source,
        peak_memory=memory.peak,
        host_syncs=steps.waits,
        phases=steps.phases,
        beside={"decode": _seconds_of_decoding(faces, batch) / workers},
        figures={"bare_per_second": batch / seconds, "forward_per_second": bare.forward_per_second()},
    )


@dataclass(frozen=True)
class Steps:
    """Means over the measured steps."""

    seconds: float
    phases: dict[str, float]
    waits: int | None


def measure_steps(training: Training, seconds: float) -> Steps:
    """Train until steady steps have taken so long."""
    clock, steppers, begun = Clock(training.group.device), [], 0.0

    def new_stepper(*given: Any, **settings: Any) -> TimedStepper:
        steppers.append(TimedStepper(*given, clock=clock, **settings))
        return steppers[-1]

    def end_step() -> bool:
        nonlocal begun
        if training.state.step == WARM_UP:
            clock.restart()
            begun = time.perf_counter()
        measured = training.state.step - WARM_UP
        return measured >= LEAST_STEPS and time.perf_counter() - begun >= seconds

    training.stepper = new_stepper
    with closing(training.run(end_step)) as reports:
        for _ in reports:
            clock.mark("report")
    steps, phases = training.state.step - WARM_UP, clock.spent()
    return Steps(sum(phases.values()) / steps, {name: each / steps for name, each in phases.items()}, steppers[0].waits)


class BareBackbone:
    """Forward, backward and optimizer step of the network alone, on one batch that lies on the device."""

    def __init__(self, config: TrainingConfig, dim: int, faces: Faces, device: torch.device) -> None:
        """Build the network and decode the batch."""
        network = build_network(config.backbone, dim, head=config.head, groups=config.groups).train()
        self.model: Any = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config, self.device = config, device
        self.optimizer = build_optimizer(list(self.model.parameters()), config)
        rows = np.arange(config.batch_size) % len(faces)
        self.images_BCHW = normalize_pixels(faces.load(rows), device)

    def seconds_of_step(self, at_least: float) -> float:
        """Mean seconds of a step."""
        return self._timed(self._step, at_least)

    def forward_per_second(self) -> float:
        """Images per second of a forward pass in evaluation."""
        self.model.eval()
        with torch.inference_mode():
            return len(self.images_BCHW) / self._timed(self._forward, 0.5)

    def _timed(self, work: Callable[[], object], at_least: float) -> float:
        with tuned_kernels(self.device, reduced=self.config.precision != "fp32"):
            return seconds_per_call(work, self.device, at_least=at_least)

    def _forward(self) -> Tensor:
        precision = self.config.precision
        with torch.autocast(self.device.type, PRECISIONS[precision], enabled=precision != "fp32"):
            features_BD: Tensor = self.model(self.images_BCHW)
        return features_BD

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._forward().float().square().mean().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def _begin(setting: Setting, faces: Faces, config: TrainingConfig, dim: int) -> Training:
    codes_NL, shape = number_codes(setting.identities, setting.config.tokenization)
    execution = setting.config.execution
    return begin_training(
        faces,
        codes_NL,
        draw_vectors(setting.folder, setting.identities, dim),
        config,
        seed=0,
        group=ProcessGroup(setting.device),
        num_values=shape.vocab_size,
        gradient_checkpointing=execution.gradient_checkpointing,
        compile=execution.compile,
        code_vector_memory=execution.code_vector_memory,
        code_vector_precision=execution.code_vector_precision,
    )


def _seconds_of_decoding(faces: Faces, batch: int) -> float:
    """Seconds in which one core decodes a batch."""
    rows = np.arange(batch) % len(faces)
    images_BHWC = np.empty((batch, *faces.shape), np.uint8)
    return seconds_of(partial(faces.fill, images_BHWC, rows), torch.device("cpu"))
