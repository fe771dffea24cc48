"""Features of IJB or TinyFace, computed and stored in parts; pooling flags reuse them."""

# Shapes: B faces in a batch, M faces of a part, D dimensions.

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from gif_core.backbones import Both
from gif_core.protocols import POOLED_AT_ONCE

ALIGNMENT: Final = "five points to 112×112, least squares, bilinear, black border"
VERSION: Final = 1
"""Increase it when the same images and network would give different features."""
LOADED_PARTS: Final = 2
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class FeaturePart:
    """Faces from `start` to `end`, whose features are computed and stored together."""

    key: str
    """Digest of the network, the set, the alignment and the faces."""
    start: int
    end: int


def plan_features(faces: int, facts: Mapping[str, Any]) -> list[FeaturePart]:
    """Cut the faces into parts; `facts` identify the network and the set."""
    parts = []
    for start in range(0, faces, POOLED_AT_ONCE):
        end = min(start + POOLED_AT_ONCE, faces)
        about = json.dumps([VERSION, ALIGNMENT, start, end, dict(facts)], sort_keys=True)
        parts.append(FeaturePart(hashlib.sha256(about.encode()).hexdigest(), start, end))
    return parts


def collect_part(chunks: Generator[Both, None, None], part: FeaturePart) -> bytes:
    """The unnormalised features of a part and of its mirror images, as a safetensors file."""
    both: tuple[list[Floats], list[Floats]] = ([], [])
    with closing(chunks):
        for pair in chunks:
            for collected, features_BD in zip(both, pair, strict=True):
                assert features_BD is not None
                collected.append(features_BD.cpu().numpy())
    original_MD, mirror_MD = map(np.concatenate, both)
    if not (np.isfinite(original_MD).all() and np.isfinite(mirror_MD).all()):
        raise ValueError(f"the features of faces {part.start} to {part.end} are not finite")
    return save({"original": original_MD, "mirror": mirror_MD})


class StoredFeatures:
    """The features of a set, with a few parts in memory at a time."""

    def __init__(self, parts: Sequence[FeaturePart], read: Callable[[int], bytes]) -> None:
        """`read` returns the content of a part by its number."""
        self.parts = parts
        self._part = lru_cache(LOADED_PARTS)(lambda number: load(read(number)))

    def load(self, start: int, end: int) -> tuple[Floats, Floats]:
        """Features of the faces `start` to `end` and of their mirror images; all must be in one part."""
        number = start // POOLED_AT_ONCE
        part = self.parts[number]
        if not part.start <= start < end <= part.end:
            raise ValueError(f"faces {start} to {end} are not in one part")
        inside = slice(start - part.start, end - part.start)
        tensors = self._part(number)
        return tensors["original"][inside], tensors["mirror"][inside]
