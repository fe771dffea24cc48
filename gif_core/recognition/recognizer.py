"""A trained model in use: what turns images into features and finds identities, opened from artifacts."""

# Shapes: B images, D dimensions.

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.artifacts import Artifact
from gif_core.backbones import embed_images
from gif_core.images import Landmarks
from gif_core.recognition.code_tree import NOBODY
from gif_core.recognition.gallery import Gallery, Method
from gif_core.recognition.thresholds import Calibration
from gif_core.separation import open_code_vectors
from gif_core.tokenization import read_codes
from gif_core.training import check_has_token_heads, check_reads_codes, learned_codes, load_token_heads
from schemas.stages import StageName


def open_gallery(
    artifacts: Mapping[StageName, Artifact], *, beam: int, device: torch.device, method: Method | None = None
) -> Gallery:
    """The identities whom a model was trained on, with their codes and code vectors, to be found by `method` or by any.

    NoTokenHeadsError if the model was trained without them; `exhaustive` needs the code vectors alone.
    """
    training = artifacts["training"]
    description = training.path("model.json")
    check = check_has_token_heads if method == "exhaustive" else check_reads_codes
    check(description)
    heads = load_token_heads(training.path("head.safetensors"), description)
    codes_NL, shape = read_codes(artifacts["tokenization"].path("codes.duckdb"))
    vectors_ND = open_code_vectors(artifacts["separation"])
    reads_codes = learned_codes(description)
    return Gallery(heads, codes_NL, shape, vectors_ND, beam=beam, device=device, reads_codes=reads_codes)


@dataclass(frozen=True, slots=True)
class LoadedImages:
    """Images that are in memory already."""

    images_BHWC: NDArray[np.uint8]

    def load(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """RGB images [B, 112, 112, 3]."""
        return self.images_BHWC[indices]


def embed_faces(
    model: nn.Module, images_BHWC: NDArray[np.uint8], device: torch.device, *, flip: bool = True
) -> NDArray[np.float32]:
    """Features of unit length [B, D], with `flip` of image and mirror together."""
    images, rows_B = LoadedImages(images_BHWC), np.arange(len(images_BHWC))
    return np.concatenate(list(embed_images(model, images, rows_B, flip=flip, device=device)))


def points_of(path: Path, landmarks: Landmarks) -> NDArray[np.float64]:
    """The five points of an image, which the file of landmarks may call by less than its whole path."""
    for first in range(len(path.parts)):
        name = "/".join(path.parts[first:])
        if name in landmarks.points:
            return landmarks.points[name]
    raise ValueError(f"{path} is not in {landmarks.file.name}: it needs a line `{path.name} x1 y1 … x5 y5`")


def identify_faces(
    gallery: Gallery, z_BD: NDArray[np.float32], identities: Path, top: int, calibration: Calibration
) -> Iterator[dict[str, Any]]:
    """For each feature whether the person is known (None without a threshold), and the `top` candidates.

    Their codes have a chance only where the model reads codes.
    """
    found = gallery.find(z_BD, top, calibration.method)
    probabilities_BK = gallery.probabilities(z_BD, found.identities_BK) if gallery.reads_codes else None
    cosines_BK = gallery.cosines(z_BD, found.identities_BK)
    labels = pq.read_table(identities, columns=["label"])["label"]
    for row, identities_K in enumerate(found.identities_BK.tolist()):
        candidates = [
            {
                "identity_id": identity,
                "label": labels[identity].as_py(),
                "probability": None if probabilities_BK is None else float(probabilities_BK[row, place]),
                "cosine": float(cosines_BK[row, place]),
            }
            for place, identity in enumerate(identities_K)
            if identity != NOBODY
        ]
        yield {"known": calibration.knows(float(found.scores_BK[row, 0])), "candidates": candidates}
