"""Out-of-memory errors of a training, with the settings that need less memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from schemas.errors import GifError
from schemas.training import UNSAMPLED, TrainingConfig

SIGNS: Final = ("can't allocate memory", "not enough memory", "out of memory")
"""What PyTorch says of a CPU's memory, in errors of no kind of their own."""


class OutOfMemoryError(GifError, RuntimeError):
    """The device has too little memory."""


@contextmanager
def memory_explained(what: str, config: TrainingConfig, device: torch.device) -> Iterator[None]:
    """Say what to set when there is too little memory for `what`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        raise OutOfMemoryError(f"{device} has too little memory for {what}: {_advise(config)}") from error


def _is_about_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in str(error) for sign in SIGNS)


def _advise(config: TrainingConfig) -> str:
    general = (
        f"raise training.accumulation (here {config.accumulation}), set execution.gradient_checkpointing=true or "
        "training.precision=bf16, use more processes, or lower training.batch_size"
    )
    if config.head in ("gif", "virtual_fc", "dcq", "f2c"):
        return general
    rows = f"training.head={config.head} keeps a row for each identity, which more processes share out"
    rate = config.sample_rate_of_head
    fewer = f"; lower training.sample_rate (here {rate:g})" if config.head not in UNSAMPLED else ""
    return f"{rows}{fewer}; training.head=gif keeps none. Otherwise {general}"
