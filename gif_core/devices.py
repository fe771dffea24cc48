"""The device is chosen once, at the edge; the core follows its input."""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

import torch

_claims: list[IO[str]] = []
"""Locks that this process holds until it ends."""


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@cache
def own_device(name: str) -> torch.device:
    """The same, but processes that ask for a GPU get one each while there are enough of them."""
    device = pick_device(name)
    if device.type != "cuda" or torch.cuda.device_count() < 2:
        return device
    gpus = [str(torch.cuda.get_device_properties(gpu).uuid) for gpu in range(torch.cuda.device_count())]
    return torch.device("cuda", claim_one(gpus))


def claim_one(names: Sequence[str]) -> int:
    """Number of the first name that no other process of this user has claimed; the claim ends with the process."""
    folder = Path(tempfile.gettempdir(), f"gif-claims-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    for number, name in enumerate(names):
        file = (folder / name).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        _claims.append(file)
        return number
    return os.getpid() % len(names)
