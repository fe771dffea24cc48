"""Tokenization as a cached task."""

import pyarrow.parquet as pq

from gif_core.artifacts import Draft
from gif_core.code_quality import QUALITY_FILE, code_quality
from gif_core.code_table import write_code_table
from gif_core.tokenization import code_shape, tokenize
from schemas.run import RunConfig
from tasks.inputs import open_code_vectors
from tasks.progress import last, track
from tasks.stage import Inputs, stage_task


@stage_task("tokenization")
def tokenization(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    """Code vectors are clustered again and again, and the path of an identity is its code."""
    vectors = open_code_vectors(inputs["separation"])
    shape = code_shape(len(vectors), config.tokenization)
    steps = tokenize(vectors, shape, iterations=config.tokenization.iterations, seed=config.seed)
    codes = last(track(steps, "tokenization", lambda step: (step.done, step.total))).codes_NL
    assert codes is not None
    write_code_table(draft.folder, codes, shape, pq.read_table(inputs["ingestion"].path("identities.parquet")))
    quality = code_quality(codes, shape, vectors, iterations=config.tokenization.iterations, seed=config.seed)
    pq.write_table(quality, draft.folder / QUALITY_FILE)
    draft.metrics |= {"identities": len(codes), "length": shape.length, "range": shape.range}
    draft.metrics["occupancy"] = len(codes) / shape.capacity(0)
