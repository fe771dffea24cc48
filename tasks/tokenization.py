"""Tokenization as a cached task."""

import pyarrow.parquet as pq

from gif_core.artifacts import Draft
from gif_core.code_means import mean_cosines, sum_by_prefix
from gif_core.code_quality import QUALITY_FILE, code_quality
from gif_core.code_table import write_code_table
from gif_core.inputs import open_code_vectors
from gif_core.token_alignment import align_tokens
from gif_core.tokenization import Codes, CodeShape, Vectors, code_shape, draw_codes, tokenize
from schemas.run import RunConfig
from tasks.progress import last, track
from tasks.stage import Inputs, stage_task


@stage_task("tokenization")
def tokenization(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Code vectors are clustered again and again, and the path of an identity is its code."""
    vectors = open_code_vectors(inputs["separation"])
    shape = code_shape(len(vectors), config.tokenization)
    if config.tokenization.mode == "structured":
        codes = _cluster(config, vectors, shape, draft)
    else:
        codes = draw_codes(len(vectors), shape, seed=config.seed)
    write_code_table(draft.folder, codes, shape, pq.read_table(inputs["ingestion"].path("identities.parquet")))
    quality = code_quality(codes, shape, vectors, iterations=config.tokenization.iterations, seed=config.seed)
    pq.write_table(quality, draft.folder / QUALITY_FILE)
    draft.metrics |= {"identities": len(codes), "length": shape.length, "range": shape.range}
    draft.metrics["occupancy"] = len(codes) / shape.capacity(0)


def _cluster(config: RunConfig, vectors: Vectors, shape: CodeShape, draft: Draft) -> Codes:
    """Structured codes; the figures are the mean cosine to the own cluster and what aligned tokens explain."""
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
        draft.metrics[f"explained_{step.level}_by_chance"] = step.explained_by_chance
    assert step.codes_NL is not None
    return step.codes_NL
