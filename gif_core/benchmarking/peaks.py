"""The work of a network, and the most that a device could do."""

# Shapes: B images, C channels, H height, W width.

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from gif_core.backbones import build_backbone
from gif_core.benchmarking.clock import seconds_per_call
from gif_core.images import IMAGE_SIZE

GEMM: Final = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices whose product is measured."""
GEMM_SECONDS: Final = 0.5


@dataclass(frozen=True)
class DataSheet:
    """A GPU by its data sheet: dense operations per second with tensor cores, and memory."""

    half: float
    """Of bf16, or of fp16 where there is no bf16."""
    single: float
    """Of TF32, or of fp32 where there is none."""
    memory: float
    """Bytes."""


PEAKS: Final = {
    "B200": DataSheet(2250e12, 1100e12, 180e9),
    "H200": DataSheet(989e12, 494e12, 141e9),
    "H100 PCIe": DataSheet(756e12, 378e12, 80e9),
    "H100": DataSheet(989e12, 494e12, 80e9),
    "A100-SXM4-40GB": DataSheet(312e12, 156e12, 40e9),
    "A100-PCIE-40GB": DataSheet(312e12, 156e12, 40e9),
    "A100": DataSheet(312e12, 156e12, 80e9),
    "A40": DataSheet(150e12, 75e12, 48e9),
    "A30": DataSheet(165e12, 82e12, 24e9),
    "A10G": DataSheet(70e12, 35e12, 24e9),
    "A10": DataSheet(125e12, 62e12, 24e9),
    "L40S": DataSheet(362e12, 183e12, 48e9),
    "L4": DataSheet(121e12, 60e12, 24e9),
    "V100": DataSheet(125e12, 15.7e12, 32e9),
    "T4": DataSheet(65e12, 8.1e12, 16e9),
    "RTX A6000": DataSheet(155e12, 77e12, 48e9),
    "RTX 4090": DataSheet(165e12, 83e12, 24e9),
    "RTX 3090": DataSheet(71e12, 36e12, 24e9),
}
"""By a part of the name that PyTorch reports; the first that fits counts."""


def find_data_sheet(name: str) -> DataSheet | None:
    """The data sheet of a GPU by its name; None if it is not in the table."""
    words = name.replace("-", " ").lower().split()
    for known, sheet in PEAKS.items():
        wanted = known.replace("-", " ").lower().split()
        if all(word in words for word in wanted):
            return sheet
    return None


def find_peak(device: torch.device, precision: str) -> tuple[float, str]:
    """Operations per second that the device could do at most, and where the number is from."""
    sheet = find_data_sheet(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    if sheet is None:
        return measure_products(device, precision), f"measured: product of two matrices in {precision}"
    return (sheet.single if precision == "fp32" else sheet.half), f"data sheet, dense, {precision}"


def measure_products(device: torch.device, precision: str) -> float:
    """Operations per second of a large matrix product."""
    side = GEMM.get(device.type, GEMM["cpu"])
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    factor = torch.randn(side, side, device=device, dtype=kinds[precision])
    product = torch.empty_like(factor)
    seconds = seconds_per_call(lambda: torch.mm(factor, factor, out=product), device, at_least=GEMM_SECONDS)
    return 2 * side**3 / seconds


def count_flops(network: Any, size: int = IMAGE_SIZE, device: torch.device | None = None) -> float:
    """Operations of a forward pass of one image, with tensors that have shapes and no values: nothing is computed.

    The image is on `device`, which is the network's. It asks for a gradient: without it attention is one fused
    operation that PyTorch does not count.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        network(torch.empty(1, 3, size, size, device=device, requires_grad=True))
    return float(counter.get_total_flops())


@dataclass(frozen=True)
class BackboneSize:
    """A backbone's work and memory."""

    flops: float
    """Operations of a forward pass of one image; forward and backward together take three times as many."""
    activations: int
    """Bytes that are kept of one image for the backward pass in fp32."""
    parameters: int


@cache
def size_of_backbone(name: str, dim: int) -> BackboneSize:
    """Count operations, activations and parameters of a backbone with features of `dim` dimensions."""
    network = _build_quickly(name, dim)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return BackboneSize(count_flops(network.eval()), _count_activations(network.train()), parameters)


def _build_quickly(name: str, dim: int) -> nn.Module:
    """The network without values; with them if its initialisation looks at them."""
    try:
        with FakeTensorMode():
            return build_backbone(name, dim)
    except DataDependentOutputException:
        return build_backbone(name, dim)


def _count_activations(network: nn.Module) -> int:
    kept: dict[int, Tensor] = {}
    own = {id(tensor) for tensor in (*network.parameters(), *network.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor) and id(tensor) not in own:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        network(torch.empty(2, 3, IMAGE_SIZE, IMAGE_SIZE))
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values()) // 2
