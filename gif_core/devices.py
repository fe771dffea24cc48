"""The device is chosen once, at the edge; the core follows its input."""

import torch


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
