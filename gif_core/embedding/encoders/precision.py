"""The precision of a network that only looks: full on a CPU, half on a GPU."""

from contextlib import AbstractContextManager, nullcontext

import torch

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """`auto` is bf16 on a GPU that has it, else fp16; a CPU computes in fp32 unless it is told otherwise."""
    if precision == "auto":
        precision = _best(device)
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, TYPES[precision])


def _best(device: torch.device) -> str:
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
