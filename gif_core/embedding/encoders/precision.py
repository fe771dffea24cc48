"""The precision of inference: fp32 on a CPU, half precision on a GPU."""

from contextlib import AbstractContextManager, nullcontext

import torch

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return the autocast context; `auto` is fp32 on a CPU, bf16 on a GPU that supports it, else fp16."""
    if precision == "auto":
        precision = _best(device)
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, TYPES[precision])


def _best(device: torch.device) -> str:
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
