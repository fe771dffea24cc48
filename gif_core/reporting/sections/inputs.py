"""Types and readers that several sections of the report share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact
from gif_core.reporting.plots import Curve
from schemas.files import Split, identity_table
from schemas.run import RunConfig
from schemas.stages import StageName

Inputs = Mapping[StageName, Artifact]
Shown = dict[str, Any]
"""The values that a section of the template uses."""


def read_curves(path: Path, name: str, x: str, y: str, filters: Any = None) -> dict[str, Curve]:
    """Read the curve of every name in a long table, in the order in which the names first occur."""
    table = pq.read_table(path, columns=[name, x, y], filters=filters)
    parts = {value: table.filter(pc.equal(table[name], value)) for value in table[name].unique().to_pylist()}
    return {value: Curve(part[x].to_numpy(), part[y].to_numpy()) for value, part in parts.items()}


def count_identities(ingestion: Artifact, split: Split) -> dict[str, int]:
    """Count the identities and images of a split."""
    counts = pq.read_table(ingestion.path(identity_table(split)), columns=["num_samples"])["num_samples"]
    return {"identities": len(counts), "images": pc.sum(counts).as_py() or 0}


def describe_encoder(config: RunConfig) -> str:
    """Return the encoder and its weights in a few words."""
    weights = "untrained weights" if config.embedding.pretrained == "random" else config.embedding.pretrained
    return f"{config.embedding.model}, {weights}"
