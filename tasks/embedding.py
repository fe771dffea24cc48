"""Embedding as a cached task made of cached parts."""

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import torch
from prefect import task
from prefect.cache_policies import NO_CACHE

from gif_core.artifacts import Artifact, ArtifactStore, Draft
from gif_core.artifacts.parts import PartStore, list_parts
from gif_core.devices import own_device
from gif_core.embedding import Part, PartSums, Summary, embed_part, identity_vectors, plan_parts
from gif_core.encoders.base import ImageEncoder
from gif_core.encoders.building import build_encoder
from gif_core.faces import Faces
from schemas.artifacts import PARTS_FILE, ArtifactRef
from schemas.embedding import EmbeddingConfig
from schemas.execution import ExecutionConfig
from schemas.run import RunConfig
from tasks.progress import track
from tasks.runners import open_runner, resources, runner_kind, threads_per_part
from tasks.stage import Inputs, stage_task

logger = logging.getLogger(__name__)


@stage_task("embedding")
def embedding(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Every identity gets the mean of its faces' encoder features (Eq. 3)."""
    faces, parts = inputs["ingestion"], PartStore(ArtifactStore(config.store), "embedding")
    shards = [faces.stored(name) for name in faces.names("identities-")]
    plan = plan_parts(shards, draft.settings, config.execution.part_megabytes * 2**20)
    names = _compute_missing(config, faces.ref, plan, parts)
    (draft.folder / PARTS_FILE).write_text(list_parts(names))
    _write_vectors(draft, faces, parts, names)


def _compute_missing(config: RunConfig, faces: ArtifactRef, plan: list[Part], parts: PartStore) -> list[str]:
    """Names of all parts in order, after those that are not stored yet have been computed."""
    stored = parts.names()
    missing = [part for part in plan if part.key not in stored]
    logger.info("%d of %d parts are stored already", len(plan) - len(missing), len(plan))
    if missing:
        build_encoder(config.embedding, torch.device("cpu"))  # what is wrong with the weights is wrong for all parts
        done = track(_run_parts(config, faces, missing), "embedding", lambda step: (step[0], len(missing)))
        stored |= {part.key: name for part, (_, name) in zip(missing, done, strict=True)}
    return [stored[part.key] for part in plan]


def _run_parts(config: RunConfig, faces: ArtifactRef, missing: list[Part]) -> Iterator[tuple[int, str]]:
    """How many parts are done, and the name of the last; in order."""
    execution = config.execution
    logger.info("embedding %d parts with %s", len(missing), runner_kind(execution))
    given = {"store": config.store, "faces": faces, "config": config.embedding, "execution": execution}
    with open_runner(execution) as runner, resources(execution):
        futures = [runner.submit(compute_part, given | {"part": part}) for part in missing]
        for number, future in enumerate(futures, start=1):
            yield number, future.result()


@task(name="embed part", task_run_name="embed {part.shard} {part.piece}", cache_policy=NO_CACHE, persist_result=False)
def compute_part(
    store: str, faces: ArtifactRef, part: Part, config: EmbeddingConfig, execution: ExecutionConfig
) -> str:
    """Embed a part and store it; the name under which it is stored."""
    artifacts = ArtifactStore(store)
    shard = Faces([artifacts.open(faces).path(part.shard)])
    encoder = _encoder(config, own_device(execution.device), execution.precision)
    threads = threads_per_part(execution)
    sums = embed_part(encoder, shard, part, batch_size=execution.encode_batch, workers=threads)
    return PartStore(artifacts, "embedding").save(part.key, sums.to_bytes())


@cache
def _encoder(config: EmbeddingConfig, device: torch.device, precision: str) -> ImageEncoder:
    """One for each process."""
    return build_encoder(config, device, precision)


def _write_vectors(draft: Draft, faces: Artifact, parts: PartStore, names: list[str]) -> None:
    """Put the identities together, a window at a time."""
    people = faces.path("identities.parquet")
    summary, identities = Summary(), pq.read_metadata(people).num_rows
    spans = [_span(PartSums.from_bytes(parts.load(name))) for name in names]
    writer: pq.ParquetWriter | None = None
    for table in identity_vectors(spans, lambda number: PartSums.from_bytes(parts.load(names[number])), identities):
        writer = writer or pq.ParquetWriter(draft.folder / "vectors.parquet", table.schema)
        writer.write_table(table)
        summary.add(table)
    if writer is None:
        raise ValueError("there is nobody to embed")
    writer.close()
    _write_summary(draft, summary, people)


def _span(part: PartSums) -> tuple[int, int]:
    return (int(part.ids_P[0]), int(part.ids_P[-1])) if len(part.ids_P) else (0, -1)


def _write_summary(draft: Draft, summary: Summary, people: Path) -> None:
    chosen = [("identity_id", "in", [identity for _, identity, _ in summary.lowest])]
    named = pq.read_table(people, columns=["identity_id", "label"], filters=chosen if summary.lowest else None)
    labels = dict(zip(named["identity_id"].to_pylist(), named["label"].to_pylist(), strict=True))
    pq.write_table(summary.least_cohesive(labels), draft.folder / "least_cohesive.parquet")
    draft.metrics |= summary.metrics
