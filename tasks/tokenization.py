"""Tokenization as a cached task."""

import numpy as np
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore, Draft
from gif_core.separation import open_code_vectors
from gif_core.tokenization import (
    DUCKDB_FILE,
    PARQUET_FILE,
    QUALITY_FILE,
    Codes,
    CodeShape,
    Vectors,
    align_tokens,
    check_identities,
    code_quality,
    code_shape,
    draw_codes,
    extend,
    mean_cosines,
    read_codes,
    sum_by_prefix,
    tokenize,
    write_code_table,
)
from schemas.run import RunConfig
from tasks.progress import last, track
from tasks.stage import Inputs, stage_task


@stage_task("tokenization")
def tokenization(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Code vectors are clustered again and again, and the path of an identity is its code."""
    vectors = open_code_vectors(inputs["separation"])
    if config.tokenization.extends:
        codes, shape = _extend(config, vectors, inputs["ingestion"], draft)
    else:
        codes, shape = _make(config, vectors, draft)
    write_code_table(draft.folder, codes, shape, pq.read_table(inputs["ingestion"].path("identities.parquet")))
    quality = code_quality(codes, shape, vectors, iterations=config.tokenization.iterations, seed=config.seed)
    pq.write_table(quality, draft.folder / QUALITY_FILE)
    draft.metrics |= {"identities": len(codes), "length": shape.length, "vocab_size": shape.vocab_size}
    draft.metrics["occupancy"] = len(codes) / shape.capacity(0)


def _make(config: RunConfig, vectors: Vectors, draft: Draft) -> tuple[Codes, CodeShape]:
    """A code for all identities."""
    shape = code_shape(len(vectors), config.tokenization)
    if config.tokenization.mode == "structured":
        return _cluster(config, vectors, shape, draft), shape
    return draw_codes(len(vectors), shape, seed=config.seed), shape


def _extend(config: RunConfig, vectors: Vectors, faces: Artifact, draft: Draft) -> tuple[Codes, CodeShape]:
    """Codes that are given stay, and new identities get free ones near their neighbours."""
    store = ArtifactStore(config.store)
    assert config.tokenization.extends is not None
    table = store.open(store.ref("tokenization", config.tokenization.extends))
    check_identities(table.path(PARQUET_FILE), faces.path("identities.parquet"), more=True)
    codes, shape = read_codes(table.path(DUCKDB_FILE))
    known = len(codes)
    draft.metrics["kept_codes"] = known
    if len(vectors) == known:
        return codes, shape
    added = extend(codes, shape, np.asarray(vectors[:known]), np.asarray(vectors[known:]))
    return np.concatenate([codes, added]), shape


def _cluster(config: RunConfig, vectors: Vectors, shape: CodeShape, draft: Draft) -> Codes:
    """Structured codes; the metrics are the mean cosine to the own cluster and what aligned tokens explain."""
    settings = config.tokenization
    steps = tokenize(
        vectors,
        shape,
        iterations=settings.iterations,
        seed=config.seed,
        points_per_centroid=settings.points_per_centroid,
        workers=config.execution.workers,
    )
    codes = last(track(steps, "tokenization", lambda step: (step.done, step.total))).codes_NL
    assert codes is not None
    levels = sum_by_prefix(vectors, codes, shape)
    draft.metrics |= {f"cosine_{level}": cosine for level, cosine in enumerate(mean_cosines(levels)) if level}
    if settings.alignment == "none":
        return codes
    alignment = align_tokens(vectors, codes, levels, shape, seed=config.seed)
    for step in track(alignment, "alignment", lambda step: (step.level, step.length)):
        draft.metrics[f"explained_{step.level}"] = step.explained
        draft.metrics[f"explained_{step.level}_random"] = step.explained_random
    assert step.codes_NL is not None
    return step.codes_NL
