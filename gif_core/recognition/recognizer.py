"""A trained model in use, for notebooks, services and the command line."""

# Shapes: B images, D dimensions, K candidates of an image, H height, W width, C channels.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    find_evaluation,
    find_model,
    source_of,
    with_ancestors,
)
from gif_core.backbones import embed_batch, embed_images
from gif_core.detection import FaceMode
from gif_core.images import open_faces
from gif_core.recognition.code_tree import NO_IDENTITY
from gif_core.recognition.gallery import METHODS, Candidates, Gallery, Method, open_gallery
from gif_core.recognition.given_images import AnyImage, Points, gather_images
from gif_core.recognition.probes import choose_unknown
from gif_core.recognition.thresholds import (
    Calibration,
    PairThreshold,
    choose_threshold,
    pair_thresholds,
    read_calibration,
)
from gif_core.runtime import pick_device
from gif_core.training import open_backbone
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.files import IDENTITIES_FILE, SCORES_FILE
from schemas.stages import StageName

DRAWN = "drawn faces"
BEAM = 64
"""Beam width if evaluation did not set one."""


class NotEvaluatedError(GifError):
    """The model has no threshold, because it was not evaluated."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Whether two faces are of one identity, and how far that can be trusted."""

    same: bool
    cosine: float
    threshold: float
    """The cosine above which two faces are of one identity."""
    set: str
    """The evaluated set that the threshold and the two rates come from."""
    pairs: int
    """Pairs of that set."""
    accuracy: float
    far: float
    """Share of its pairs of different identities that the threshold accepts."""
    domain: str = ""
    """What the images of that set are, if they are not photographs: the rates do not hold for photographs then."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An enrolled identity that an image may show."""

    identity_id: int
    label: str
    probability: float | None
    """Probability of its code among all codes in use; None if the model does not read codes."""
    cosine: float
    """z·h, between the image's feature and the identity's code vector."""


@dataclass(frozen=True, slots=True)
class Identified:
    """Which enrolled identity an image shows."""

    known: bool | None
    """Whether the first candidate reaches the threshold; None if evaluation has found no threshold."""
    candidates: tuple[Candidate, ...]
    """Best first."""


class Recognizer:
    """Embeds, verifies and identifies faces with a trained model.

    >>> recognizer = Recognizer.load("artifacts")                   # the champion, or else the newest run's model
    >>> recognizer.embed(["a.jpg", "b.jpg"]).shape
    (2, 512)
    >>> recognizer.verify("a.jpg", "b.jpg").same
    True
    >>> recognizer.identify("a.jpg", top=5)[0].candidates[0].label
    'person-000007'

    Images are paths, the bytes of image files, uint8 RGB arrays [height, width, 3] or faces of `read_faces`, one or a
    list of them. With `faces="auto"`, images of 112×112 pixels are taken as aligned faces; in all others the largest
    face is found and aligned, and a warning is logged if there are several, or if it is tiny or blurred. `landmarks`
    [5, 2] each take the place of the detector.
    """

    def __init__(self, artifacts: Mapping[StageName, Artifact], device: torch.device, *, reason: str = "") -> None:
        """Take a model with the artifacts it was made from, and its evaluation if it has one; `load` finds them."""
        self.device = device
        self.reason = reason
        """Why this model was chosen."""
        self._artifacts = artifacts
        self._backbone = open_backbone(artifacts["training"], device)
        self._galleries: dict[Method, Gallery] = {}

    @classmethod
    def load(cls, store: ArtifactStore | str, model: str | None = None, device: str = "auto") -> Self:
        """Open a model of a store, given as such or by its folder or URL.

        Args:
            store: The artifact store that holds the model.
            model: A tag such as `champion`, `training/KEY`, the first digits of a key, or a run id. By default the
                champion, and where there is none the newest run's model.
            device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`, which is a GPU if there is one.
        """
        opened = ArtifactStore(store) if isinstance(store, str) else store
        found = find_model(opened, model)
        artifacts = with_ancestors(opened, found.artifact)
        evaluation = find_evaluation(opened, found.artifact, prefer_own_faces=True)
        if evaluation:
            artifacts["evaluation"] = evaluation
        return cls(artifacts, pick_device(device), reason=found.reason)

    @property
    def model(self) -> ArtifactRef:
        """The artifact of the model."""
        return self._artifacts["training"].ref

    @cached_property
    def thresholds(self) -> dict[str, PairThreshold]:
        """The threshold that evaluation found on each of its sets of pairs; held-out identities come first."""
        if "evaluation" not in self._artifacts:
            raise NotEvaluatedError(
                f"{self.model} was not evaluated, so it has no threshold: run its configuration with --from evaluation"
            )
        return pair_thresholds(self._artifacts["evaluation"].path(SCORES_FILE))

    def calibration(self, by: Method = "reranked") -> Calibration:
        """The threshold between known and unknown identities for one method, or why there is none."""
        return read_calibration(self._artifacts.get("evaluation"), by)

    def embed(
        self,
        images: AnyImage | Sequence[AnyImage] | NDArray[np.uint8],
        landmarks: Points | Sequence[Points] | None = None,
        *,
        faces: FaceMode = "auto",
        flip: bool = True,
    ) -> NDArray[np.float32]:
        """Unit-length features [B, D]; `flip` adds the features of the mirror image, as in evaluation."""
        given = gather_images(images, landmarks, faces)
        chunks = embed_images(self._backbone, given, np.arange(len(given)), flip=flip, device=self.device)
        return np.concatenate(list(chunks))

    def embed_aligned(self, faces_BHWC: NDArray[np.uint8], *, flip: bool = True) -> NDArray[np.float32]:
        """Unit-length features [B, D] of aligned faces of 112×112 pixels, RGB, as one batch."""
        return embed_batch(self._backbone, faces_BHWC, flip=flip, device=self.device)

    def embed_held_out(self, most: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Features and identities of up to `most` held-out faces of the model's ingestion; none if it is gone."""
        if "ingestion" not in self._artifacts or not self._artifacts["ingestion"].names("held_out-"):
            return np.empty((0, 0), np.float32), np.empty(0, np.int64)
        chosen = choose_unknown(open_faces(self._artifacts["ingestion"], "held_out", workers=1), most, seed=0)
        chunks = embed_images(self._backbone, chosen.images, chosen.rows_N, flip=True, device=self.device)
        return np.concatenate(list(chunks)), chosen.identity_N

    def verify(
        self,
        a: AnyImage,
        b: AnyImage,
        landmarks: Points | Sequence[Points] | None = None,
        *,
        faces: FaceMode = "auto",
        pairs: str | None = None,
    ) -> Verified:
        """Decide whether two faces are of one identity, by the threshold that evaluation found on the set `pairs`.

        By default that is the set of held-out identities, or else the first one. `landmarks` are [2, 5, 2].
        """
        known = choose_threshold(self.thresholds, pairs)
        return self.compare(self.embed([a, b], landmarks, faces=faces, flip=known.flip), pairs)

    def compare(self, z_2D: NDArray[np.float32], pairs: str | None = None) -> Verified:
        """What `verify` answers for two features."""
        known = choose_threshold(self.thresholds, pairs)
        cosine = float(z_2D[0] @ z_2D[1])
        same = 2 - 2 * cosine < known.distance
        return Verified(
            same, cosine, known.cosine, known.set, known.pairs, known.accuracy, known.far, self._domain(known)
        )

    def _domain(self, known: PairThreshold) -> str:
        """What the images behind a threshold are: drawn faces if the set, or all sources of held-out faces, are."""
        if known.kind.startswith("synthetic"):
            return DRAWN
        about = self._artifacts.get("ingestion", self._artifacts["training"]).settings
        sources = about.get("sources", [])  # a model that was made elsewhere names its sources itself
        drawn = bool(sources) and all(source.get("kind") == "synthetic" for source in sources)
        return DRAWN if known.kind == "held_out" and drawn else ""

    def identify(
        self,
        images: AnyImage | Sequence[AnyImage] | NDArray[np.uint8],
        top: int = 5,
        by: Method = "reranked",
        landmarks: Points | Sequence[Points] | None = None,
        *,
        faces: FaceMode = "auto",
    ) -> list[Identified]:
        """Find the identities that the model was trained on, with the `top` candidates of each image.

        Args:
            images: One image or several.
            top: Candidates of an image, at most.
            by: `reranked` ranks the most probable codes by z·h, `codes` by probability alone, `exhaustive` ranks all
                identities by z·h.
            landmarks: Five points of each image, to align it by.
            faces: How faces are found: `auto`, `aligned` or `detect`.
        """
        if by not in METHODS:
            raise GifError(f"unknown identification method {by!r}; known: {', '.join(METHODS)}")
        if top < 1:
            raise GifError(f"top={top}: must be at least 1")
        self._gallery(by)
        return self.find(self.embed(images, landmarks, faces=faces, flip=self.calibration(by).flip), top, by)

    def find(self, z_BD: NDArray[np.float32], top: int = 5, by: Method = "reranked") -> list[Identified]:
        """What `identify` answers for features."""
        calibration, gallery = self.calibration(by), self._gallery(by)
        found = gallery.find(z_BD, top, by)
        known = [calibration.knows(float(score)) for score in found.scores_BK[:, 0]]
        return [Identified(*each) for each in zip(known, self._describe(gallery, z_BD, found), strict=True)]

    def _gallery(self, by: Method) -> Gallery:
        """The enrolled identities, opened once per method."""
        if by not in self._galleries:
            beam = self.calibration(by).beam or BEAM
            for stage in ("separation", "tokenization"):
                self._need(stage)
            self._galleries[by] = open_gallery(self._artifacts, beam=beam, device=self.device, method=by)
        return self._galleries[by]

    def _describe(self, gallery: Gallery, z_BD: NDArray[np.float32], found: Candidates) -> list[tuple[Candidate, ...]]:
        """The candidates of each image, with probabilities if the model reads codes."""
        cosines_BK = gallery.cosines(z_BD, found.identities_BK).tolist()
        probabilities_BK = (
            gallery.probabilities(z_BD, found.identities_BK).tolist()
            if gallery.reads_codes
            else [[None] * len(row) for row in cosines_BK]
        )
        rows = zip(found.identities_BK.tolist(), probabilities_BK, cosines_BK, strict=True)
        return [
            tuple(
                Candidate(identity, self._labels[identity].as_py(), probability, cosine)
                for identity, probability, cosine in zip(*row, strict=True)
                if identity != NO_IDENTITY
            )
            for row in rows
        ]

    @cached_property
    def _labels(self) -> pa.ChunkedArray:
        """Label of each identity id."""
        return pq.read_table(self._need("ingestion").path(IDENTITIES_FILE), columns=["label"])["label"]

    def _need(self, stage: StageName) -> Artifact:
        if stage not in self._artifacts:
            made_from = source_of(self._artifacts["training"], stage).key
            raise ArtifactMissingError(f"{self.model} was made from {stage}/{made_from[:12]}, which was removed")
        return self._artifacts[stage]
