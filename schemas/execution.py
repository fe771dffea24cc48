"""How a run is executed. Nothing here changes a result, so nothing here is part of an artifact's key."""

import os
from typing import Literal

from pydantic import Field, PositiveInt

from schemas.base import Frozen


class ExecutionConfig(Frozen):
    """Device and degree of parallelism."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """`auto`: a GPU if there is one."""
    workers: PositiveInt = Field(default_factory=lambda: os.cpu_count() or 1)
    """Threads that read, draw and decode images."""
    encode_batch: PositiveInt = 256
    """Faces that an encoder or a backbone embeds at a time; what fits the device's memory."""
