"""Training of the backbone on fixed identity codes (Eq. 2, 7, 8, 10; the last part of Algorithm 1)."""

# Shapes: N identities, I images in all, B images in a batch, H height, W width, C channels, D dimensions,
# L tokens of a code.

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, AdamW, Optimizer

from gif_core.backbones import build_network
from gif_core.heads import Head, build_head
from gif_core.images import Faces
from gif_core.runtime import ProcessGroup, device_memory, runs_behind, tuned_kernels
from gif_core.training.average import new_average
from gif_core.training.data.device_batches import copy_ahead
from gif_core.training.data.loader import load_batches
from gif_core.training.data.sampler import epoch_shape, plan_batches
from gif_core.training.global_batch_norm import synchronise_batch_norm
from gif_core.training.oom import memory_explained
from gif_core.training.schedules import check_warmup
from gif_core.training.step import PRECISIONS, Precision, Stepper, TrainingState
from schemas.training import TrainingConfig

SHARE_FOR_VECTORS: Final = 0.25
"""Part of a GPU's memory that code vectors may take by default."""
INITIALISATION: Final = 501
"""The second part of the seed of the first weights."""
MOST_REPORTS: Final = 2000
"""Unless one would cover too many steps."""
LONGEST_SILENCE: Final = 50
"""Steps that a report covers at the most."""


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What the steps since the last report did, as means over them and over all processes; of `skipped` the number."""

    step: int
    """Counted from 1."""
    steps: int
    """Of the whole training."""
    epoch: int
    """Counted from 0."""
    metrics: dict[str, float]


@dataclass(slots=True)
class Training:
    """A training that can be run, and left and taken up again between two steps."""

    state: TrainingState
    faces: Faces
    config: TrainingConfig
    seed: int
    group: ProcessGroup
    compile: bool = False
    reports: list[TrainingReport] = field(default_factory=list)
    """Of all steps so far, also of those before it was taken up again."""
    teacher: nn.Module | None = None
    """A frozen network whose features are learned from as well."""
    verify: Callable[[nn.Module], dict[str, float]] | None = None
    """What is measured after every epoch, by the first process."""
    stepper: Callable[..., Stepper] = Stepper
    """What takes the steps; benchmarks put one in its place that measures them."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps."""
        return epoch_shape(len(self.faces), self.config, self.group.size)[0]

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole training."""
        return self.config.epochs * self.steps_per_epoch

    def run(self, end_step: Callable[[], bool] = lambda: False) -> Generator[TrainingReport, None, None]:
        """Minimise the head's loss (Eq. 10) over the faces, and yield a report every few steps.

        All processes call `end_step` after every step and its report; True ends the run there. On a CPU the same seed
        gives the same weights. Closing the iterator ends the processes that read ahead, as many as `faces` has workers.
        """
        plans = plan_batches(
            len(self.faces),
            self.config,
            labels_I=self.faces.labels_N,
            seed=self.seed,
            start_step=self.state.step,
            rank=self.group.rank,
            world=self.group.size,
        )
        device = self.group.device
        pin = runs_behind(device)
        settings = {"seed": self.seed, "steps": self.steps, "compile": self.compile}
        stepper = self.stepper(self.state, self.config, self.group, **settings)
        stepper.teacher = self.teacher
        with (
            tuned_kernels(device, reduced=self.config.precision != "fp32"),
            closing(load_batches(self.faces, plans, workers=self.faces.workers, pin=pin)) as batches,
        ):
            since = time.perf_counter()
            for batch, following in copy_ahead(batches, device) if pin else ((batch, None) for batch in batches):
                if following is not None:
                    stepper.prepare(following)
                stepper.take(batch)
                if self._is_due(self.state.step):
                    means, images = stepper.collect()
                    means["images_per_second"] = images / (time.perf_counter() - since)
                    yield self._report(batch.epoch, means)
                    since = time.perf_counter()
                if end_step():
                    return

    def _is_due(self, step: int) -> bool:
        every = min(max(self.steps // MOST_REPORTS, 1), LONGEST_SILENCE)
        return step % every == 0 or step % self.steps_per_epoch == 0

    def _report(self, epoch: int, metrics: dict[str, float]) -> TrainingReport:
        """Kept before the network is looked at, which takes long: whoever interrupts that finds the report here."""
        report = TrainingReport(self.state.step, self.steps, epoch, metrics)
        self.reports.append(report)
        ends_epoch = self.state.step % self.steps_per_epoch == 0
        if ends_epoch and self.verify and self.group.leads:
            report.metrics.update(self.verify(self.state.published))
        return report


def begin_training(
    faces: Faces,
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    config: TrainingConfig,
    *,
    seed: int,
    group: ProcessGroup,
    num_values: int | None = None,
    gradient_checkpointing: bool = False,
    compile: bool = False,
    code_vector_memory: float | None = None,
    code_vector_precision: Precision = "fp32",
) -> Training:
    """A training before its first step. The label of an image is its row in `codes_NL` and `code_vectors_ND`."""
    _check_labels(faces.labels_N, len(codes_NL))
    with memory_explained("the network and its head", config, group.device):
        state = build_state(
            codes_NL,
            code_vectors_ND,
            config,
            seed=seed,
            group=group,
            num_values=num_values,
            gradient_checkpointing=gradient_checkpointing,
            code_vector_memory=code_vector_memory,
            code_vector_precision=code_vector_precision,
        )
    training = Training(state, faces, config, seed, group, compile)
    check_warmup(config.warmup_steps, training.steps)
    return training


def build_state(
    codes_NL: NDArray[np.integer[Any]],
    code_vectors_ND: NDArray[np.floating[Any]],
    config: TrainingConfig,
    *,
    seed: int,
    group: ProcessGroup,
    num_values: int | None = None,
    gradient_checkpointing: bool = False,
    code_vector_memory: float | None = None,
    code_vector_precision: Precision = "fp32",
) -> TrainingState:
    """Model, head and optimizer before the first step; initialised on the CPU, so alike on every device.

    Code vectors are held on the device if they fit `code_vector_memory` gigabytes, by default a share of its memory.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_initialisation_seed(seed))
        model: nn.Module = build_network(
            config.backbone,
            code_vectors_ND.shape[1],
            head=config.head,
            groups=config.groups,
            gradient_checkpointing=gradient_checkpointing,
        )
        head = build_head(config, codes_NL, code_vectors_ND, num_values=num_values, seed=seed)
    if config.sync_batch_norm:
        model = synchronise_batch_norm(model, group)
    model = model.to(group.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    head = head.to(group.device)
    hold_rows(head, group.device, code_vector_memory, code_vector_precision)
    backbone = list(model.parameters())
    optimizer = build_optimizer([*backbone, *common_parameters(head)], config, backbone)
    head.attach(optimizer)
    scaler = GradScaler(group.device.type, enabled=config.precision == "fp16")
    return TrainingState(model, head, optimizer, scaler, average=new_average(model, head))


def hold_rows(head: Head, device: torch.device, gigabytes: float | None, precision: Precision) -> None:
    """Keep rows of identities on a GPU if they fit; None: in a share of its memory."""
    memory = SHARE_FOR_VECTORS * device_memory(device) if gigabytes is None else gigabytes * 1e9
    head.hold_rows(device, memory, PRECISIONS[precision])


def build_optimizer(
    parameters: Sequence[nn.Parameter], config: TrainingConfig, backbone: Sequence[nn.Parameter] = ()
) -> Optimizer:
    """SGD or AdamW with one weight decay for everything learned, as the paper states its recipe.

    With `training.backbone_rate` the backbone is a group of its own, whose learning rate is multiplied by `factor`.
    SGD is fused, which takes a third of the time on a CPU and gives the same bits. On a GPU AdamW is fused too: such an
    optimizer can skip a step by itself (`update`).
    """
    learned: Any = [parameter for parameter in parameters if parameter.requires_grad]
    if config.backbone_rate is not None:
        slow = {id(parameter) for parameter in backbone}
        own, rest = ([each for each in learned if (id(each) in slow) == wanted] for wanted in (True, False))
        learned = [{"params": own, "factor": config.backbone_rate}, {"params": rest, "factor": 1.0}]
    settings: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    on_gpu = runs_behind(parameters[0].device)
    if config.optimizer == "adamw":
        return AdamW(learned, fused=on_gpu or None, **settings)
    optimizer = SGD(learned, momentum=config.momentum, fused=True, **settings)
    if config.momentum:
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            # else unset after a first step that is skipped, and where some parameters begin later than others
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def common_parameters(head: Head) -> list[nn.Parameter]:
    """The parameters of a head that it does not move itself."""
    rows = head.row_optimizer()
    own = {id(parameter) for group in rows.param_groups for parameter in group["params"]} if rows else set()
    return [parameter for parameter in head.parameters() if id(parameter) not in own]


def _initialisation_seed(seed: int) -> int:
    return int(np.random.SeedSequence([seed, INITIALISATION]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check_labels(labels_I: NDArray[np.int64], num_identities: int) -> None:
    if len(labels_I) and not 0 <= labels_I.min() <= labels_I.max() < num_identities:
        raise ValueError(f"labels {labels_I.min()} to {labels_I.max()} do not fit {num_identities} identity codes")
