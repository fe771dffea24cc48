"""Makes open_clip importable where torchvision's compiled operators cannot be loaded.

The torchvision on PyPI is compiled for CUDA. With a CPU build of torch its extension does not load, and
`import torchvision` fails because two operators that it registers fake kernels for are unknown. Declaring them is
enough, because nothing here computes boxes.
"""

import torch


def declare_missing_operators() -> None:
    """Declare `torchvision::nms` and `qnms` unless they are loaded; call before other imports of torchvision."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{name}", schema)
