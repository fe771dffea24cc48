"""Vision transformers for faces in the layout of insightface's `recognition/arcface_torch`, and CVLFace's ViT-base.

Their state dicts have the same names. In training, random tokens are masked (left out, and replaced by a learned token
after the last block) and random blocks are skipped (drop path); both use PyTorch's global generator.
"""

# Shapes: B images, C channels, H height, W width, T patch tokens, K unmasked tokens, A heads, E width of a token,
# D dimensions of a feature.

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gif_core.backbones.base import Backbone

IMAGE_SIZE: Final = 112


class DropPath(nn.Module):
    """Drop a residual branch for random images in training, and scale it up for the others."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch_BTE: Tensor) -> Tensor:
        """The branch, zeroed for the dropped images."""
        if not self.training or self.rate == 0:
            return branch_BTE
        kept_B = torch.rand(len(branch_BTE), device=branch_BTE.device) >= self.rate
        return branch_BTE * (kept_B / (1 - self.rate)).to(branch_BTE.dtype)[:, None, None]


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Attend over all tokens."""
        query, key, value = self.qkv(x_BTE).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended_BATE = F.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.proj(attended_BATE.transpose(1, 2).flatten(2))
        return projected


class Mlp(nn.Module):
    """Linear, ReLU6, Linear."""

    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, inside)
        self.fc2 = nn.Linear(inside, width)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Apply the layers to every token."""
        output: Tensor = self.fc2(F.relu6(self.fc1(x_BTE)))
        return output


class Block(nn.Module):
    """Attention and MLP, each after a layer norm and with a residual connection."""

    def __init__(self, width: int, heads: int, mlp_ratio: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, mlp_ratio * width)
        self.drop_path = DropPath(drop_path)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Transform the tokens."""
        x_BTE = x_BTE + self.drop_path(self.attn(self.norm1(x_BTE)))
        summed: Tensor = x_BTE + self.drop_path(self.mlp(self.norm2(x_BTE)))
        return summed


class PatchEmbedding(nn.Module):
    """Image patches to tokens; pixels beyond the last whole patch are ignored."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """One token per patch, row by row."""
        tokens_BTE: Tensor = self.proj(images_BCHW).flatten(2).mT
        return tokens_BTE


class VisionTransformer(Backbone):
    """A ViT without class token: the feature is computed from the concatenation of all tokens."""

    draws_random_numbers = True

    def __init__(
        self,
        embedding_dim: int,
        *,
        patch: int = 9,
        width: int = 512,
        depth: int = 24,
        heads: int = 8,
        mlp_ratio: int = 4,
        drop_path: float = 0.1,
        masked: float = 0.1,
    ) -> None:
        """`drop_path` is the rate of the last block, rising linearly from 0; `masked` is the share of masked tokens."""
        super().__init__()
        tokens, self.masked = (IMAGE_SIZE // patch) ** 2, masked
        self.patch_embed = PatchEmbedding(patch, width)
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        rates = [drop_path * number / (depth - 1) for number in range(depth)]
        self.blocks = nn.ModuleList(Block(width, heads, mlp_ratio, rate) for rate in rates)
        self.norm = nn.LayerNorm(width)
        self.feature = nn.Sequential(
            nn.Linear(width * tokens, width, bias=False),
            nn.BatchNorm1d(width, eps=2e-5),
            nn.Linear(width, embedding_dim, bias=False),
            nn.BatchNorm1d(embedding_dim, eps=2e-5),
        )
        if masked:
            self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.apply(_initialise)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Features before normalisation; norm and last layers stay in fp32 under autocast."""
        x_BTE = self.patch_embed(images_BCHW) + self.pos_embed
        kept_BK = self._draw_kept(x_BTE) if self.training and self.masked else None
        if kept_BK is not None:
            x_BTE = x_BTE.gather(1, kept_BK[:, :, None].expand(-1, -1, x_BTE.shape[2]))
        x_BTE = self.run_blocks(self.blocks, x_BTE)
        with torch.autocast(device_type=x_BTE.device.type, enabled=False):
            x_BTE = self.norm(x_BTE.float())
            if kept_BK is not None:
                x_BTE = self._fill_up(x_BTE, kept_BK)
            features_BD: Tensor = self.feature(x_BTE.flatten(1))
        return features_BD

    def _draw_kept(self, x_BTE: Tensor) -> Tensor:
        """Draw the unmasked tokens of each image."""
        images, tokens, _ = x_BTE.shape
        order_BT = torch.rand(images, tokens, device=x_BTE.device).argsort(dim=1)
        return order_BT[:, : int(tokens * (1 - self.masked))]

    def _fill_up(self, x_BKE: Tensor, kept_BK: Tensor) -> Tensor:
        """Insert the learned token at the positions of the masked ones."""
        images, _, width = x_BKE.shape
        full_BTE = self.mask_token.expand(images, self.pos_embed.shape[1], width)
        return full_BTE.scatter(1, kept_BK[:, :, None].expand(-1, -1, width), x_BKE)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def vit_tiny(embedding_dim: int = 512) -> VisionTransformer:
    """19.1 M parameters at 512 dimensions."""
    return VisionTransformer(embedding_dim, width=256, depth=12)


def vit_small(embedding_dim: int = 512) -> VisionTransformer:
    """76.0 M parameters at 512 dimensions."""
    return VisionTransformer(embedding_dim, depth=12)


def vit_base(embedding_dim: int = 512) -> VisionTransformer:
    """113.8 M parameters at 512 dimensions: the ViT-B of published comparisons."""
    return VisionTransformer(embedding_dim)


def vit_large(embedding_dim: int = 512) -> VisionTransformer:
    """255.7 M parameters at 512 dimensions; insightface's config says 5 % masked tokens, but its code masks 10 %."""
    return VisionTransformer(embedding_dim, width=768, drop_path=0.05)


def vit_cvlface_base(embedding_dim: int = 512) -> VisionTransformer:
    """CVLFace's ViT-base: smaller patches, more and narrower heads, no masked tokens."""
    return VisionTransformer(embedding_dim, patch=8, heads=16, mlp_ratio=3, masked=0.0)
