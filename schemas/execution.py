"""How a run is executed. Nothing here changes a result, so nothing here is part of an artifact's key."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.base import Frozen
from schemas.stages import StageName


class ExecutionConfig(Frozen):
    """Device and degree of parallelism."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """`auto`: a GPU if there is one."""
    workers: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """Threads that read, draw, decode and, on a CPU, encode images; processes on one machine share them."""
    encode_batch: PositiveInt = 256
    """Faces that an encoder or a backbone embeds at a time; what fits the device's memory."""
    runner: Literal["auto", "threads", "processes", "ray", "dask"] = "auto"
    """What embeds the parts of a dataset. `auto`: processes when there are several GPUs, else threads. `ray` and
    `dask` need the extra of that name."""
    runner_address: str | None = None
    """A Ray or Dask cluster that runs already; None starts one on this machine for as long as it is needed. On such a
    cluster `workers` are the threads of one part, and with `device: cuda` Ray gives each part a GPU of its own."""
    parts_at_once: PositiveInt | None = None
    """Parts embedded at the same time. None: one for each GPU; without GPUs one part that all workers share, or, in
    processes, one for each worker."""
    part_megabytes: PositiveInt = 32
    """Size of a part: what a killed run has to do again at most, and what one task of Prefect does."""
    processes: PositiveInt | None = None
    """Processes under torchrun that share separation and training on a machine. None: one for each GPU; without GPUs
    the run itself does it."""
    nodes: str = Field(default="1", pattern=r"^[1-9][0-9]*(:[1-9][0-9]*)?$")
    """Machines that train together, `4`, or at least two and at most four of them, `2:4`. The same run is started on
    each, and its store is one that all reach."""
    rendezvous: str | None = None
    """`host:port` of the machine at which the others meet it, when there are several."""
    restarts: NonNegativeInt = 3
    """Times that torchrun starts its processes again when one of them fails, or when another machine leaves; they go on
    from the last checkpoint."""
    checkpoint_seconds: NonNegativeFloat = 600.0
    """Longest time between two checkpoints of training."""
    checkpoint_steps: PositiveInt | None = None
    """Most steps between two checkpoints of training; null: only time counts."""
    checkpoints_kept: PositiveInt = 2
    compile: bool = False
    """Let torch.compile make the backbone faster; the first step takes minutes, and rounding and what a ViT leaves out
    at random are the compiler's."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass rather than keep them: less memory, more time."""
    retries: NonNegativeInt = 3
    """Times that a stage is tried again when a disk, a network or a server was away; bad input is told at once."""
    retry_seconds: PositiveFloat = 10.0
    """Pause before the first of them; each further pause is twice as long."""
    timeouts: dict[StageName, PositiveFloat] = Field(default_factory=dict)
    """Seconds after which a stage is stopped and its run fails, `{training: 86400}`; others have all the time."""
    tensorboard: Path | None = None
    """Folder to which training writes events that TensorBoard shows live, one below it for each model."""
    wandb: str | None = None
    """Project of Weights & Biases to log training to; its package must be installed."""
