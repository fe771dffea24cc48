"""A part of embedding as a job for any process, which opens the shard and the encoder itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gif_core.artifacts import Artifact, ArtifactStore, PartJob
from gif_core.embedding.encoders import open_encoder, with_whole_path
from gif_core.embedding.mean_vectors import Part, embed_part, plan_parts
from gif_core.images import Faces
from gif_core.runtime import own_device
from schemas.artifacts import ArtifactRef
from schemas.embedding import EmbeddingConfig
from schemas.run import RunConfig
from schemas.stages import StageName


@dataclass(frozen=True)
class EmbedPart(PartJob):
    """Feature sums of a part's identities (Eq. 3)."""

    kind: ClassVar[str] = "embed part"
    stage: ClassVar[StageName] = "embedding"

    faces: ArtifactRef
    part: Part
    config: EmbeddingConfig
    weights: str
    """Digest of the encoder's weights, as in the key of the part."""

    @property
    def title(self) -> str:
        """Which piece of which shard."""
        return f"embed {self.part.shard} {self.part.piece}"

    def compute(self, threads: int) -> bytes:
        """Encode the part's faces."""
        shard = Faces([ArtifactStore(self.store).open(self.faces).path(self.part.shard)])
        encoder = open_encoder(self.config, self.weights, own_device(self.device))
        return embed_part(encoder, shard, self.part, batch_size=self.batch_size, workers=threads).to_bytes()


def plan_jobs(config: RunConfig, faces: Artifact, settings: Mapping[str, Any]) -> list[EmbedPart]:
    """Jobs for all faces of the training identities; `settings` are those in the artifact's key."""
    execution = config.execution
    shards = [faces.stored(name) for name in faces.names("identities-")]
    store, encoder = ArtifactStore(config.store).storage.url, with_whole_path(config.embedding)
    return [
        EmbedPart(
            store=store,
            key=part.key,
            faces=faces.ref,
            part=part,
            config=encoder,
            weights=settings["pretrained"],
            device=execution.device,
            batch_size=execution.encode_batch,
        )
        for part in plan_parts(shards, settings, execution.part_megabytes * 2**20)
    ]
