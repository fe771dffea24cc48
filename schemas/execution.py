"""How a run is executed. No setting here changes a result, so none is part of an artifact's key."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from schemas.base import Frozen
from schemas.stages import StageName


class ExecutionConfig(Frozen):
    """Device, parallelism, checkpoints, retries and time limits."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where networks and matrices are computed. `auto`: a GPU if there is one, else the CPU."""
    workers: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """Threads that read, draw and decode images and, on a CPU, run the encoder; the processes of one machine share
    them. Default: the number of CPU cores."""
    encode_batch: PositiveInt = 256
    """Images per batch of an encoder, and of a backbone outside training. Lower it when device memory runs out."""
    runner: Literal["auto", "threads", "processes", "ray", "dask"] = "auto"
    """What runs the parts of embedding. `auto`: processes when there are several GPUs, else threads. `ray` and `dask`
    need the extra of that name."""
    runner_address: str | None = None
    """Address of a running Ray or Dask cluster; null: start one on this machine for the duration of the stage. On such
    a cluster `workers` counts the threads of one part, and with `device: cuda` Ray assigns each part its own GPU."""
    parts_at_once: PositiveInt | None = None
    """Parts of embedding that run concurrently. null: one per GPU; without GPUs one part that uses all workers, or
    with processes one per worker."""
    part_megabytes: PositiveInt = 32
    """Size of one part of embedding in megabytes of images: the unit of one Prefect task, and the most work that a
    killed run loses."""
    processes: PositiveInt | None = None
    """Processes per machine that torchrun starts for separation and training. null: one per GPU; without GPUs the run's
    own process does the work."""
    nodes: str = Field(default="1", coerce_numbers_to_str=True, pattern=r"^[1-9][0-9]*(:[1-9][0-9]*)?$")
    """Number of machines that separate and train together, such as `4`, or a range such as `2:4`. Start the same run on
    each, with a store that all of them reach."""
    rendezvous: str | None = None
    """`host:port` of the machine at which the others meet; needed when `nodes` is above 1."""
    restarts: NonNegativeInt = 3
    """How often torchrun restarts its processes after one fails or a machine leaves; they resume from the last
    checkpoint."""
    checkpoint_seconds: NonNegativeFloat = 600.0
    """Longest time between two checkpoints of separation or training, in seconds."""
    checkpoint_steps: PositiveInt | None = None
    """Most steps between two training checkpoints; null: no limit besides `checkpoint_seconds`."""
    checkpoints_kept: PositiveInt = 2
    """Training checkpoints that are kept; older ones are deleted."""
    background_checkpoints: bool = True
    """Write training checkpoints while the training goes on; it waits only until the state is copied to host memory,
    or until the checkpoint before is complete. false: training waits until each is complete."""
    code_vector_memory: NonNegativeFloat | None = None
    """Gigabytes of a GPU's memory that the code vectors of all identities may take in training; those that need more
    stay in host memory, and the rows of a step are copied. null: a quarter of the GPU's memory."""
    code_vector_precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision in which a GPU holds `frozen` and `mapped` code vectors: fp16 and bf16 take half the memory and round
    their cosines, by about 1e-5 and 1e-4. `living` ones move by less than that in a step, and are always fp32."""
    process_timeout: PositiveFloat = 3600.0
    """Seconds that a process of separation or training waits for the others before it fails."""
    lost_after: PositiveFloat = 60.0
    """Seconds without a sign of another machine after which it counts as lost; a shorter interruption of the network is
    waited out. The machines that remain start again from the last checkpoint (`nodes`, `restarts`)."""
    compile: bool = False
    """Compile the backbone with torch.compile. The first step takes minutes; rounding and the random masking of ViTs
    then differ from uncompiled training."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them: less memory, about a third more time."""
    retries: NonNegativeInt = 3
    """How often a stage is retried after a failure of a disk, a network or a server. Bad input fails at once."""
    retry_seconds: PositiveFloat = 10.0
    """Pause before the first retry in seconds; it doubles with every further one."""
    timeouts: dict[StageName, PositiveFloat] = Field(default_factory=dict)
    """Time limits by stage in seconds, such as `{training: 86400}`; a stage that exceeds its limit fails the run.
    Stages that are not listed have no limit."""
    tensorboard: Path | None = None
    """Folder for live TensorBoard events of training, one sub-folder per model; null: none."""
    wandb: str | None = None
    """Weights & Biases project to which training is logged; null: none. Needs the `wandb` package."""
