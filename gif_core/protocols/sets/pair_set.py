"""A set of pairs: its images and which of them are paired, whatever file they come from."""

# Shapes: B images that are loaded.

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gif_core.images import Images, load_each, read_face
from gif_core.protocols.pairs import Pairs
from gif_core.protocols.sets.files import EvaluationFileError


@dataclass(frozen=True)
class PairSet:
    """Images, and which of them form pairs."""

    images: Images
    pairs: Pairs


class EncodedImages:
    """Encoded images in memory."""

    def __init__(self, where: str, contents: Sequence[bytes]) -> None:
        """Keep the encoded images; `where` is used in messages."""
        self.where, self.contents = where, contents

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return RGB images [B, 112, 112, 3]."""
        return load_each(indices, self._load_one)

    def _load_one(self, index: int) -> NDArray[np.uint8]:
        try:
            return read_face(self.contents[index])
        except ValueError as error:
            raise EvaluationFileError(f"{self.where}, image {index}: {error}") from None
