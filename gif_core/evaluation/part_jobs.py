"""Features of a part of IJB or TinyFace as a job for any process, which opens the network and the images itself."""

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gif_core.artifacts import Artifact, ArtifactStore, Inputs, PartJob, PartRun, PartRunner, PartStore
from gif_core.backbones import Both, embed_both, embed_chunks
from gif_core.embedding.encoders import describe_weights, open_encoder, with_whole_path
from gif_core.evaluation.results import SetResult
from gif_core.evaluation.template_features import FeaturePart, StoredFeatures, collect_part, plan_features
from gif_core.images import Images
from gif_core.protocols.sets import EvaluationFiles, IjbImages, IjbName, read_faces, tinyface_images
from gif_core.runtime import Progress, own_device
from gif_core.training import open_backbone
from schemas.artifacts import ArtifactRef
from schemas.embedding import EmbeddingConfig
from schemas.evaluation import Network
from schemas.files import BACKBONE_FILE, MODEL_FILE
from schemas.run import RunConfig
from schemas.stages import StageName

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """Where a set is stored, and the digest of its files when the run began."""

    address: str
    name: IjbName | Literal["TinyFace"]
    digest: str


@dataclass(frozen=True)
class FeaturesOfFaces(PartJob):
    """Features of a part's faces and of their mirror images; those of IJB are aligned by their landmarks."""

    stage: ClassVar[StageName] = "evaluation"

    tree: Tree
    part: FeaturePart

    @property
    def title(self) -> str:
        """Which faces of which set."""
        return f"{self.kind.split()[0]} {self.tree.name} from {self.part.start}"

    def compute(self, threads: int) -> bytes:
        """Load the faces and compute their features."""
        rows = np.arange(self.part.start, self.part.end)
        return collect_part(self.features(_open_images(self.tree), rows, threads), self.part)

    @abstractmethod
    def features(self, images: Images, rows: Rows, threads: int) -> Generator[Both, None, None]:
        """The network's un-normalised features of these images, in chunks."""


@dataclass(frozen=True)
class EmbedFaces(FeaturesOfFaces):
    """Features of a part's faces by the trained model."""

    kind: ClassVar[str] = "embed templates"

    training: ArtifactRef

    def features(self, images: Images, rows: Rows, threads: int) -> Generator[Both, None, None]:
        """Embed the images."""
        device = own_device(self.device)
        model = _open_model(self.store, self.training, device)
        return embed_both(model, images, rows, device=device, batch_size=self.batch_size, workers=threads)


@dataclass(frozen=True)
class EncodeFaces(FeaturesOfFaces):
    """Features of a part's faces by the encoder."""

    kind: ClassVar[str] = "encode templates"

    config: EmbeddingConfig
    weights: str
    """Digest of the encoder's weights, as in the key of the part."""

    def features(self, images: Images, rows: Rows, threads: int) -> Generator[Both, None, None]:
        """Encode the images."""
        encoder = open_encoder(self.config, self.weights, own_device(self.device))
        both = partial(encoder.encode_both, mirror=True)
        return embed_chunks(both, images, rows, batch_size=self.batch_size, workers=threads)


def plan_jobs(
    config: RunConfig, inputs: Inputs, network: Network, tree: Tree, faces: int, contents: Mapping[str, Any]
) -> list[EmbedFaces] | list[EncodeFaces]:
    """Jobs for all faces of a set; `contents` are digests of its files."""
    execution = config.execution
    shared: dict[str, Any] = {"store": ArtifactStore(config.store).storage.url, "tree": tree}
    shared |= {"device": execution.device, "batch_size": execution.encode_batch}
    if network == "model":
        training = inputs["training"]
        parts = plan_features(faces, {**_model_facts(training), **contents})
        return [EmbedFaces(key=part.key, part=part, training=training.ref, **shared) for part in parts]
    weights, encoder = describe_weights(config.embedding), with_whole_path(config.embedding)
    facts = {"encoder": config.embedding.model_dump(mode="json") | {"pretrained": weights}}
    parts = plan_features(faces, {**facts, **contents})
    return [EncodeFaces(key=part.key, part=part, config=encoder, weights=weights, **shared) for part in parts]


def scored_networks(config: RunConfig, result: SetResult) -> list[Network]:
    """The networks of `evaluation.systems`, the encoder first; without any the result is undefined."""
    networks: list[Network] = [network for network in get_args(Network) if network in config.evaluation.systems]
    if not networks:
        result.undefined = "the set is scored with the encoder and the model, and evaluation.systems names neither"
    return networks


def complete_features(
    config: RunConfig, result: SetResult, jobs: Sequence[FeaturesOfFaces], runner: PartRunner, *, from_scratch: bool
) -> Generator[Progress, None, StoredFeatures]:
    """The features of all faces, stored in parts; the result names the parts."""
    parts = PartStore(ArtifactStore(config.store), "evaluation")
    part_run = PartRun(parts, jobs, from_scratch=from_scratch)
    names = yield from part_run.complete(runner, jobs[0].tree.name)
    result.parts += names
    result.parts_computed += len(part_run.missing)
    return StoredFeatures([job.part for job in jobs], lambda number: parts.load(names[number]))


def _model_facts(training: Artifact) -> dict[str, str]:
    """The weights, so that runs that trained the same model share features."""
    return {name: training.stored(name).sha256 for name in (BACKBONE_FILE, MODEL_FILE)}


@lru_cache(1)
def _open_model(store: str, training: ArtifactRef, device: torch.device) -> nn.Module:
    """Open the model once per process."""
    return open_backbone(ArtifactStore(store).open(training), device)


@lru_cache(1)
def _open_images(tree: Tree) -> Images:
    """Open the set once per process."""
    files = EvaluationFiles(tree.address)
    return tinyface_images(files) if tree.name == "TinyFace" else IjbImages(files, read_faces(files, tree.name))
