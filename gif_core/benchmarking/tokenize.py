"""Code vectors to a code table with its quality, as the tokenization stage does it."""

# Shapes: N identities, D dimensions.

import time
from typing import Final

import numpy as np
import pyarrow as pa
import torch

from gif_core.benchmarking.memory import watched_memory
from gif_core.benchmarking.setting import Setting, code_dimension
from gif_core.tokenization import (
    Vectors,
    align_tokens,
    code_quality,
    code_shape,
    sum_by_prefix,
    tokenize,
    write_code_table,
)
from schemas.benchmarks import BenchmarkResult
from schemas.tokenization import TokenizationConfig

IDENTITIES: Final = 10_000


def bench_tokenize(setting: Setting) -> BenchmarkResult:
    """Identities per second through Algorithm 1, and the operations of its products per second."""
    dim, config = code_dimension(setting.config), setting.config.tokenization
    workers = setting.config.execution.workers
    vectors_ND = np.random.default_rng(0).standard_normal((IDENTITIES, dim), np.float32)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    with watched_memory(torch.device("cpu")) as memory:
        phases = _measure(vectors_ND, config, setting, workers)
    seconds, work = sum(phases.values()), clustering_flops(IDENTITIES, dim, config)
    return setting.result(
        "tokenize",
        f"{dim} dimensions",
        settings={"identities": IDENTITIES, "dimension": dim, "workers": workers},
        items="identities",
        per_second=IDENTITIES / seconds,
        flops_per_second=work / phases["cluster"],
        peak_memory=memory.peak,
        phases=phases,
        figures={
            "cluster_flops_per_second": work / phases["cluster"],
            "rest_per_second": IDENTITIES / (seconds - phases["cluster"]),
        },
    )


def clustering_flops(identities: int, dim: int, config: TokenizationConfig) -> float:
    """Operations of the products of hierarchical k-means: per node the iterations on its sample, then all rows once."""
    shape, total, nodes = code_shape(identities, config), 0.0, 1.0
    for level in range(shape.length):
        rows = identities / nodes
        if level and rows <= shape.vocab_size:
            break
        sample = min(rows, shape.vocab_size * config.points_per_centroid)
        total += nodes * 2.0 * dim * shape.vocab_size * (config.iterations * sample + rows)
        nodes *= shape.vocab_size
    return total


def _measure(vectors_ND: Vectors, config: TokenizationConfig, setting: Setting, workers: int) -> dict[str, float]:
    """Seconds of the stage's steps."""
    shape, began = code_shape(len(vectors_ND), config), time.perf_counter()
    moments = [began]
    settings = {"iterations": config.iterations, "points_per_centroid": config.points_per_centroid}
    *_, last = tokenize(vectors_ND, shape, seed=0, workers=workers, **settings)
    assert last.codes_NL is not None
    moments.append(time.perf_counter())
    levels = sum_by_prefix(vectors_ND, last.codes_NL, shape)
    *_, aligned = align_tokens(vectors_ND, last.codes_NL, levels, shape, seed=0)
    assert aligned.codes_NL is not None
    moments.append(time.perf_counter())
    write_code_table(setting.folder, aligned.codes_NL, shape, _identities(len(vectors_ND)))
    moments.append(time.perf_counter())
    code_quality(aligned.codes_NL, shape, vectors_ND, iterations=config.iterations, seed=0)
    moments.append(time.perf_counter())
    spent = np.diff(moments).tolist()
    return dict(zip(("cluster", "align", "write", "quality"), spent, strict=True))


def _identities(count: int) -> pa.Table:
    columns = {"identity_id": np.arange(count), "label": [str(row) for row in range(count)]}
    return pa.table(columns | {"num_samples": np.ones(count, np.int32)})
