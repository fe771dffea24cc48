"""MobileFaceNet in the layout of insightface's `mbf`, with the same names in its state dict."""

# Shapes: B images, C channels, H height, W width, D dimensions of a feature.

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gif_core.backbones.base import Backbone


class Layers(nn.Module):
    """A sequence of layers, with an optional residual connection."""

    def __init__(self, *layers: nn.Module, residual: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers, and add the input if `residual`."""
        output: Tensor = self.layers(x)
        return x + output if self.residual else output


class MobileFaceNet(Backbone):
    """Bottlenecks of depthwise convolutions, then one depthwise convolution over the whole 7x7 map."""

    def __init__(self, embedding_dim: int, *, blocks: Sequence[int] = (4, 6, 2), width: int = 128) -> None:
        """`blocks` bottlenecks follow each of the three that halve the map; `width` is that of the first layers."""
        super().__init__()
        self.layers = nn.ModuleList(
            [
                _convolution(3, width, 3, stride=2),
                _convolution(width, width, 3, groups=64),
                _bottleneck(width, width, 128, stride=2),
                _residuals(width, 128, blocks[0]),
                _bottleneck(width, 2 * width, 256, stride=2),
                _residuals(2 * width, 256, blocks[1]),
                _bottleneck(2 * width, 2 * width, 512, stride=2),
                _residuals(2 * width, 256, blocks[2]),
            ]
        )
        self.conv_sep = _convolution(2 * width, 512, 1)
        self.features = Layers(
            _convolution(512, 512, 7, groups=512, padding=0, activation=False),
            nn.Flatten(),
            nn.Linear(512, embedding_dim, bias=False),
            nn.BatchNorm1d(embedding_dim),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Features before normalisation; the last layers stay in fp32 under autocast."""
        x = self.run_blocks(self.layers, images_BCHW)
        with torch.autocast(device_type=x.device.type, enabled=False):
            features_BD: Tensor = self.features(self.conv_sep(x.float()))
        return features_BD


def _convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    padding: int | None = None,
    activation: bool = True,
) -> Layers:
    """Convolution, BN and, with `activation`, PReLU."""
    padding = kernel // 2 if padding is None else padding
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return Layers(convolution, nn.BatchNorm2d(outputs), *([nn.PReLU(outputs)] if activation else []))


def _bottleneck(inputs: int, outputs: int, inside: int, *, stride: int = 1, residual: bool = False) -> Layers:
    """1x1 convolution to `inside` channels, 3x3 depthwise, 1x1 to the outputs."""
    return Layers(
        _convolution(inputs, inside, 1),
        _convolution(inside, inside, 3, stride=stride, groups=inside),
        _convolution(inside, outputs, 1, activation=False),
        residual=residual,
    )


def _residuals(width: int, inside: int, blocks: int) -> Layers:
    return Layers(*(_bottleneck(width, width, inside, residual=True) for _ in range(blocks)))


def mobilefacenet(embedding_dim: int = 512) -> MobileFaceNet:
    """2.1 M parameters at 512 dimensions."""
    return MobileFaceNet(embedding_dim)
