"""Features of a part of an IJB set as a job for any process, which opens the model and the images itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import nn

from gif_core.artifacts import Artifact, ArtifactStore, PartJob
from gif_core.evaluation.template_features import FeaturePart, embed_features, plan_features
from gif_core.protocols.sets import EvaluationFiles, IjbImages, IjbName, read_faces
from gif_core.runtime import own_device
from gif_core.training import open_backbone
from schemas.artifacts import ArtifactRef
from schemas.files import BACKBONE_FILE, MODEL_FILE
from schemas.run import RunConfig
from schemas.stages import StageName


@dataclass(frozen=True)
class Tree:
    """Where a set is stored, and the digest of its files when the run began."""

    address: str
    name: IjbName
    digest: str


@dataclass(frozen=True)
class EmbedFaces(PartJob):
    """Features of a part's faces, aligned by their landmarks, and of their mirror images."""

    kind: ClassVar[str] = "embed templates"
    stage: ClassVar[StageName] = "evaluation"

    training: ArtifactRef
    tree: Tree
    part: FeaturePart

    @property
    def title(self) -> str:
        """Which faces of which set."""
        return f"embed {self.tree.name} from {self.part.start}"

    def compute(self, threads: int) -> bytes:
        """Align and embed the faces."""
        device = own_device(self.device)
        model, images = _open_model(self.store, self.training, device), _open_images(self.tree)
        return embed_features(model, images, self.part, device=device, batch_size=self.batch_size, workers=threads)


def plan_jobs(
    config: RunConfig, training: Artifact, tree: Tree, faces: int, contents: Mapping[str, Any]
) -> list[EmbedFaces]:
    """Jobs for all faces of a set; `contents` are digests of its files."""
    # Keyed by the weights, so that runs that trained the same model share features.
    model = {name: training.stored(name).sha256 for name in (BACKBONE_FILE, MODEL_FILE)}
    execution, store = config.execution, ArtifactStore(config.store).storage.url
    return [
        EmbedFaces(
            store=store,
            key=part.key,
            training=training.ref,
            tree=tree,
            part=part,
            device=execution.device,
            batch_size=execution.encode_batch,
        )
        for part in plan_features(faces, {**model, **contents})
    ]


@lru_cache(1)
def _open_model(store: str, training: ArtifactRef, device: torch.device) -> nn.Module:
    """Open the model once per process."""
    return open_backbone(ArtifactStore(store).open(training), device)


@lru_cache(1)
def _open_images(tree: Tree) -> IjbImages:
    """Open the set once per process."""
    files = EvaluationFiles(tree.address)
    return IjbImages(files, read_faces(files, tree.name))
