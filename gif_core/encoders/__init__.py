"""Encoders: what turns a face into a general-purpose vector."""

from gif_core.encoders.open_clip_encoder import OpenClipEncoder, WeightsUnavailableError

__all__ = ["OpenClipEncoder", "WeightsUnavailableError"]
