"""Embedding alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="embedding")
def embedding(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Give every identity of the stored faces its vector (Eq. 3)."""
    return run_stages(load_config(config), ["embedding"], ["embedding"] if refresh else [])
