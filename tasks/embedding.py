"""Embedding as a cached task made of cached parts."""

import logging
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

import pyarrow.parquet as pq
import torch
from prefect import task
from prefect.cache_policies import NO_CACHE

from gif_core.artifacts import ArtifactStore, Draft, PartStore, list_parts, sha256_of
from gif_core.backbones import WeightsError
from gif_core.embedding import Part, PartSums, Summary, embed_part, identity_vectors, plan_parts
from gif_core.embedding.encoders import ImageEncoder, build_encoder, weights_file
from gif_core.images import Faces
from gif_core.runtime import own_device
from schemas.artifacts import PARTS_FILE, ArtifactRef
from schemas.embedding import EmbeddingConfig
from schemas.run import RunConfig
from tasks.progress import track
from tasks.runners import end_with_parent, open_runner, resources, threads_per_part
from tasks.stage import Inputs, stage_task

logger = logging.getLogger(__name__)
LOADED_PARTS = 4
"""Parts in memory while identities are put together."""
_one_at_a_time = Lock()
"""Threads of a process that embed parts share its encoder and, on a CPU, torch's number of threads."""


@stage_task("embedding")
def embedding(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Every identity gets the mean of its faces' encoder features (Eq. 3)."""
    faces, parts = inputs["ingestion"], PartStore(ArtifactStore(config.store), "embedding")
    shards = [faces.stored(name) for name in faces.names("identities-")]
    plan = plan_parts(shards, draft.settings, config.execution.part_megabytes * 2**20)
    names = _compute_missing(config, faces.ref, plan, parts, draft)
    (draft.folder / PARTS_FILE).write_text(list_parts(names))
    _write_vectors(draft, faces.path("identities.parquet"), parts, names)


def _compute_missing(
    config: RunConfig, faces: ArtifactRef, plan: list[Part], parts: PartStore, draft: Draft
) -> list[str]:
    """Names of all parts in order, after those that are not stored yet have been computed."""
    stored = {} if draft.from_scratch else parts.names()
    missing = [part for part in plan if part.key not in stored]
    logger.info("%d of %d parts are stored already", len(plan) - len(missing), len(plan))
    draft.metrics["parts_computed"] = len(missing)
    if missing:
        build_encoder(config.embedding, torch.device("cpu"))  # what is wrong with the weights is wrong for all parts
        done = track(_run_parts(config, faces, missing, draft), "embedding", lambda step: (step[0], len(missing)))
        stored |= {part.key: name for part, (_, name) in zip(missing, done, strict=True)}
    return [stored[part.key] for part in plan]


def _run_parts(config: RunConfig, faces: ArtifactRef, missing: list[Part], draft: Draft) -> Iterator[tuple[int, str]]:
    """How many parts are done, and the name of the last; in order."""
    execution = config.execution
    given = {
        "store": ArtifactStore(config.store).storage.url,
        "faces": faces,
        "config": _with_whole_path(config.embedding),
        "weights": draft.settings["pretrained"],
        "device": execution.device,
        "batch_size": execution.encode_batch,
        "threads": threads_per_part(execution),
    }
    with open_runner(execution) as runner, resources(execution):
        draft.metrics["runner"] = type(runner).__name__
        logger.info("embedding %d parts with %s", len(missing), draft.metrics["runner"])
        futures = [runner.submit(compute_part, given | {"part": part}) for part in missing]
        for number, future in enumerate(futures, start=1):
            yield number, future.result()


@task(name="embed part", task_run_name="embed {part.shard} {part.piece}", cache_policy=NO_CACHE, persist_result=False)
def compute_part(
    store: str,
    faces: ArtifactRef,
    part: Part,
    config: EmbeddingConfig,
    weights: str,
    device: str,
    batch_size: int,
    threads: int,
) -> str:
    """Embed a part and store it, wherever this runs; the name under which it is stored."""
    end_with_parent()
    artifacts = ArtifactStore(store)
    shard = Faces([artifacts.open(faces).path(part.shard)])
    sums = _embed_alone(shard, part, config, weights, device, batch_size, threads)
    return PartStore(artifacts, "embedding").save(part.key, sums.to_bytes())


def _embed_alone(
    shard: Faces, part: Part, config: EmbeddingConfig, weights: str, device: str, batch_size: int, threads: int
) -> PartSums:
    """Embed while no other thread of this process does; other processes get the task by value, but no lock."""
    with _one_at_a_time:
        encoder = _encoder(config, weights, own_device(device))
        return embed_part(encoder, shard, part, batch_size=batch_size, workers=threads)


@cache
def _encoder(config: EmbeddingConfig, weights: str, device: torch.device) -> ImageEncoder:
    """One for each process, and only with the weights that the key of the part names."""
    path = weights_file(config)
    found = f"sha256:{sha256_of(path)}" if path else config.pretrained
    if found != weights:
        raise WeightsError(f"{path} is not the file that the run began with: {found}, not {weights}")
    return build_encoder(config, device)


def _with_whole_path(config: EmbeddingConfig) -> EmbeddingConfig:
    """Processes elsewhere have another working folder."""
    path = weights_file(config)
    given = path is not None and Path(config.pretrained).expanduser() == path
    return config.model_copy(update={"pretrained": str(path.resolve())}) if path and given else config


def _write_vectors(draft: Draft, identities_file: Path, parts: PartStore, names: list[str]) -> None:
    """Put the identities together, a window at a time."""

    @lru_cache(LOADED_PARTS)
    def load(number: int) -> PartSums:
        return PartSums.from_bytes(parts.load(names[number]))

    summary, identities = Summary(), pq.read_metadata(identities_file).num_rows
    spans = [load(number).span for number in range(len(names))]
    writer: pq.ParquetWriter | None = None
    for table in identity_vectors(spans, load, identities):
        writer = writer or pq.ParquetWriter(draft.folder / "vectors.parquet", table.schema)
        writer.write_table(table)
        summary.add(table)
    if writer is None:
        raise ValueError("there is nobody to embed")
    writer.close()
    _write_summary(draft, summary, identities_file)


def _write_summary(draft: Draft, summary: Summary, identities_file: Path) -> None:
    chosen = [("identity_id", "in", [identity for _, identity, _ in summary.lowest])]
    named = pq.read_table(identities_file, columns=["identity_id", "label"], filters=chosen if summary.lowest else None)
    labels = dict(zip(named["identity_id"].to_pylist(), named["label"].to_pylist(), strict=True))
    pq.write_table(summary.least_cohesive(labels), draft.folder / "least_cohesive.parquet")
    draft.metrics |= summary.metrics
