"""What several sections of the report read from artifacts."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact
from gif_core.reporting.plots import Curve
from schemas.run import RunConfig


def read_curves(path: Path, name: str, x: str, y: str, filters: Any = None) -> dict[str, Curve]:
    """The curve of every name in a long table, or in those rows of it, in the order of their first rows."""
    table = pq.read_table(path, columns=[name, x, y], filters=filters)
    parts = {value: table.filter(pc.equal(table[name], value)) for value in table[name].unique().to_pylist()}
    return {value: Curve(part[x].to_numpy(), part[y].to_numpy()) for value, part in parts.items()}


def count_identities(ingestion: Artifact, split: str) -> dict[str, int]:
    """Identities and images of one split."""
    counts = pq.read_table(ingestion.path(f"{split}.parquet"), columns=["num_samples"])["num_samples"]
    return {"identities": len(counts), "images": pc.sum(counts).as_py() or 0}


def describe_encoder(config: RunConfig) -> str:
    """The encoder in a few words."""
    weights = "untrained weights" if config.embedding.pretrained == "random" else config.embedding.pretrained
    return f"{config.embedding.model}, {weights}"
