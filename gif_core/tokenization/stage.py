"""The stage tokenization: code vectors → `codes.duckdb`, `codes.parquet` and the quality of the codes."""

from collections.abc import Generator

import numpy as np
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact, ArtifactStore, Draft, Inputs
from gif_core.runtime import Progress
from gif_core.separation import open_code_vectors
from gif_core.tokenization.code_table import check_identities, read_codes, write_code_table
from gif_core.tokenization.codes import Codes, CodeShape, Vectors, code_shape, draw_codes
from gif_core.tokenization.extension import extend
from gif_core.tokenization.hierarchical_kmeans import tokenize
from gif_core.tokenization.prefix_sums import PrefixLevel, mean_cosines, sum_by_prefix
from gif_core.tokenization.quality import code_quality
from gif_core.tokenization.token_alignment import align_tokens
from schemas.files import CODE_QUALITY_FILE, CODES_DUCKDB_FILE, CODES_FILE, IDENTITIES_FILE
from schemas.run import RunConfig


def run(config: RunConfig, inputs: Inputs, draft: Draft) -> Generator[Progress, None, None]:
    """Cluster code vectors level by level; the path of an identity is its code (Algorithm 1)."""
    vectors = open_code_vectors(inputs["separation"])
    if config.tokenization.extends:
        codes, shape = _extend(config, vectors, inputs["ingestion"], draft)
    else:
        shape = code_shape(len(vectors), config.tokenization)
        codes = yield from _make(config, vectors, shape, draft)
    write_code_table(draft.folder, codes, shape, pq.read_table(inputs["ingestion"].path(IDENTITIES_FILE)))
    quality = code_quality(codes, shape, vectors, iterations=config.tokenization.iterations, seed=config.seed)
    pq.write_table(quality, draft.folder / CODE_QUALITY_FILE)
    draft.metrics |= {"identities": len(codes), "length": shape.length, "vocab_size": shape.vocab_size}
    draft.metrics["occupancy"] = len(codes) / shape.capacity(0)


def _extend(config: RunConfig, vectors: Vectors, faces: Artifact, draft: Draft) -> tuple[Codes, CodeShape]:
    """Keep the codes that are given, and give new identities free ones near their neighbours."""
    store = ArtifactStore(config.store)
    assert config.tokenization.extends is not None
    table = store.open(store.ref("tokenization", config.tokenization.extends))
    check_identities(table.path(CODES_FILE), faces.path(IDENTITIES_FILE), more=True)
    codes, shape = read_codes(table.path(CODES_DUCKDB_FILE))
    known = len(codes)
    draft.metrics["kept_codes"] = known
    if len(vectors) == known:
        return codes, shape
    added = extend(codes, shape, np.asarray(vectors[:known]), np.asarray(vectors[known:]))
    return np.concatenate([codes, added]), shape


def _make(config: RunConfig, vectors: Vectors, shape: CodeShape, draft: Draft) -> Generator[Progress, None, Codes]:
    """A code for every identity: random ones, or those of the clusters."""
    if config.tokenization.mode != "structured":
        return draw_codes(len(vectors), shape, seed=config.seed)
    codes = yield from _cluster(config, vectors, shape)
    levels = sum_by_prefix(vectors, codes, shape)
    draft.metrics |= {f"cosine_{level}": cosine for level, cosine in enumerate(mean_cosines(levels)) if level}
    if config.tokenization.alignment == "none":
        return codes
    return (yield from _align(config, vectors, codes, levels, shape, draft))


def _cluster(config: RunConfig, vectors: Vectors, shape: CodeShape) -> Generator[Progress, None, Codes]:
    settings = config.tokenization
    steps = tokenize(
        vectors,
        shape,
        iterations=settings.iterations,
        seed=config.seed,
        points_per_centroid=settings.points_per_centroid,
        workers=config.execution.workers,
    )
    yield Progress("tokenization", 0, None)
    for step in steps:
        yield Progress("tokenization", step.done, step.total)
    assert step.codes_NL is not None
    return step.codes_NL


def _align(
    config: RunConfig, vectors: Vectors, codes: Codes, levels: list[PrefixLevel], shape: CodeShape, draft: Draft
) -> Generator[Progress, None, Codes]:
    """Let one value of a token mean a similar direction below every parent; the metric is what tokens explain."""
    for step in align_tokens(vectors, codes, levels, shape, seed=config.seed):
        yield Progress("alignment", step.level, step.length)
        draft.metrics[f"explained_{step.level}"] = step.explained
        draft.metrics[f"explained_{step.level}_random"] = step.explained_random
    assert step.codes_NL is not None
    return step.codes_NL
