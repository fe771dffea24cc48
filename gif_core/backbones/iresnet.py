"""IResNet in the layout of insightface's `recognition/arcface_torch`.

Its state dict has the same names, so published `backbone.pth` files load. `iresnet_tiny` is a narrow and shallow
variant for CPUs.
"""

# Shapes: B images, C channels, H height, W width, D dimensions of a feature.

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from gif_core.backbones.base import Backbone

IMAGE_SIZE: Final = 112


class IResNetBlock(nn.Module):
    """BN, conv 3x3, BN, PReLU, conv 3x3 (stride), BN, plus the shortcut; nothing after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """The shortcut is a 1x1 convolution and BN where the block changes the shape, else the identity."""
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs, eps=1e-5)
        self.conv1 = _conv3x3(inputs, outputs, stride=1)
        self.bn2 = nn.BatchNorm2d(outputs, eps=1e-5)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = _conv3x3(outputs, outputs, stride)
        self.bn3 = nn.BatchNorm2d(outputs, eps=1e-5)
        self.downsample = (
            None
            if stride == 1 and inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(outputs, eps=1e-5),
            )
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """The residual added to the shortcut."""
        residual = self.prelu(self.bn2(self.conv1(self.bn1(x_BCHW))))
        residual = self.bn3(self.conv2(residual))
        shortcut = x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        summed: Tensor = residual + shortcut
        return summed


class IResNet(Backbone):
    """Images [B, 3, 112, 112] to features [B, D], not normalised."""

    def __init__(
        self,
        blocks: Sequence[int],
        embedding_dim: int,
        *,
        widths: Sequence[int] = (64, 128, 256, 512),
        stem_stride: int = 1,
        image_size: int = IMAGE_SIZE,
    ) -> None:
        """`blocks` and `widths` are the number of blocks and of channels of the four stages."""
        super().__init__()
        self.conv1 = _conv3x3(3, widths[0], stem_stride)
        self.bn1 = nn.BatchNorm2d(widths[0], eps=1e-5)
        self.prelu = nn.PReLU(widths[0])
        self.layer1 = _stage(widths[0], widths[0], blocks[0])
        self.layer2 = _stage(widths[0], widths[1], blocks[1])
        self.layer3 = _stage(widths[1], widths[2], blocks[2])
        self.layer4 = _stage(widths[2], widths[3], blocks[3])
        self.bn2 = nn.BatchNorm2d(widths[3], eps=1e-5)
        side = -(-image_size // (16 * stem_stride))
        self.fc = nn.Linear(widths[3] * side * side, embedding_dim)
        self.features = nn.BatchNorm1d(embedding_dim, eps=1e-5)
        self.features.weight.requires_grad = False
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, mean=0.0, std=0.1)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Features before normalisation; the last two layers stay in fp32 under autocast."""
        x = self.prelu(self.bn1(self.conv1(images_BCHW)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = self.run_blocks(stage, x)
        x = self.bn2(x)
        with torch.autocast(device_type=x.device.type, enabled=False):
            features_BD: Tensor = self.features(self.fc(x.float().flatten(1)))
        return features_BD


def _conv3x3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    first = IResNetBlock(inputs, outputs, stride=2)
    return nn.Sequential(first, *(IResNetBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)))


def iresnet_tiny(embedding_dim: int = 128, image_size: int = IMAGE_SIZE) -> IResNet:
    """For CPUs: a quarter of the width, one block a stage, and a stem that halves the image."""
    return IResNet((1, 1, 1, 1), embedding_dim, widths=(16, 32, 64, 128), stem_stride=2, image_size=image_size)


def iresnet18(embedding_dim: int = 512) -> IResNet:
    """24.0 M parameters at 512 dimensions."""
    return IResNet((2, 2, 2, 2), embedding_dim)


def iresnet34(embedding_dim: int = 512) -> IResNet:
    """34.1 M parameters at 512 dimensions."""
    return IResNet((3, 4, 6, 3), embedding_dim)


def iresnet50(embedding_dim: int = 512) -> IResNet:
    """43.6 M parameters at 512 dimensions."""
    return IResNet((3, 4, 14, 3), embedding_dim)


def iresnet100(embedding_dim: int = 512) -> IResNet:
    """65.2 M parameters at 512 dimensions: the paper's ResNet."""
    return IResNet((3, 13, 30, 3), embedding_dim)


def iresnet200(embedding_dim: int = 512) -> IResNet:
    """118.8 M parameters at 512 dimensions."""
    return IResNet((6, 26, 60, 6), embedding_dim)
