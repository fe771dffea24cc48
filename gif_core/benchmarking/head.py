"""The head alone on random features, at any number of identities."""

# Shapes: B images in a batch, D dimensions.

import time
from typing import Final

import numpy as np
import torch

from gif_core.benchmarking.clock import Clock
from gif_core.benchmarking.head_step import HeadStep, draw_labels
from gif_core.benchmarking.host_waits import counted_waits
from gif_core.benchmarking.inputs import draw_faces, draw_vectors, number_codes
from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting, code_dimension
from gif_core.benchmarking.train import BareBackbone
from gif_core.heads import Head, PairHead, build_head
from gif_core.runtime import to_device
from gif_core.training.trainer import build_optimizer, common_parameters, hold_rows
from schemas.benchmarks import BenchmarkResult
from schemas.errors import GifError
from schemas.training import TrainingConfig

WARM_UP: Final = 2


def bench_head(setting: Setting) -> BenchmarkResult:
    """Time and memory of a step of the head, and what share of its speed the backbone keeps with it."""
    dim, batch = code_dimension(setting.config), setting.batch_size
    config = setting.config.training.model_copy(update={"batch_size": batch, "learning_rate": 1e-4})
    with watched_memory(setting.device) as memory:
        steps = HeadSteps(_build(setting, config, dim), config, dim, setting)
        seconds, phases = steps.measure(setting.seconds / 2)
    faces = draw_faces(setting.folder, batch, setting.identities, 1)
    bare = BareBackbone(config, dim, faces, setting.device).seconds_of_step(setting.seconds / 4)
    return setting.result(
        "head",
        f"{config.head} {setting.identities}",
        settings={"head": config.head, "identities": setting.identities, "dimension": dim, "batch": batch}
        | {"backbone": config.backbone},
        per_second=batch / seconds,
        share=bare / (bare + seconds),
        reference=f"{config.backbone}, which a step of the head follows",
        peak_memory=memory.peak,
        host_syncs=steps.waits,
        phases=phases,
        figures={"seconds": seconds, "backbone_seconds": bare},
    )


def _build(setting: Setting, config: TrainingConfig, dim: int) -> Head:
    codes_NL, shape = number_codes(setting.identities, setting.config.tokenization)
    vectors_ND = draw_vectors(setting.folder, setting.identities, dim)
    head = build_head(config, codes_NL, vectors_ND, num_values=shape.vocab_size)
    if isinstance(head, PairHead):
        raise GifError(f"training.head={config.head} compares two networks: measure it with 'gif bench train'")
    return head.to(setting.device)


class HeadSteps:
    """Forward, backward and update of a head, as training asks for them."""

    def __init__(self, head: Head, config: TrainingConfig, dim: int, setting: Setting) -> None:
        """Give the head its optimizer and its place for rows."""
        self.head, self.setting, self.shape, self.clock = head, setting, (config.batch_size, dim), Clock(setting.device)
        execution = setting.config.execution
        hold_rows(head, setting.device, execution.code_vector_memory, execution.code_vector_precision)
        self.one_step = HeadStep(head, build_optimizer(common_parameters(head), config))
        self.rng, self.number, self.together = np.random.default_rng(0), 0, config.images_per_identity_of_head
        self.waits: int | None = None

    def measure(self, seconds: float) -> tuple[float, dict[str, float]]:
        """Mean seconds of a step, in all and by phase."""
        self.step()
        with counted_waits(self.setting.device) as waits:
            self.step()
        self.waits = waits.count
        self.clock.restart()
        begun, first = time.perf_counter(), self.number
        while self.number == first or time.perf_counter() - begun < seconds:
            self.step()
        spent, count = self.clock.spent(), self.number - first
        measured = {phase: each / count for phase, each in spent.items() if phase != "draw"}
        return sum(measured.values()), measured

    def step(self) -> None:
        """One step on new identities and features."""
        labels_B = draw_labels(self.rng, self.setting.identities, self.shape[0], self.together)
        features_BD = to_device(torch.randn(self.shape), self.setting.device).requires_grad_()
        self.clock.mark("draw")
        self.one_step.run(labels_B, self.number, lambda: self.head(features_BD, labels_B).loss, self.clock.mark)
        self.number += 1
