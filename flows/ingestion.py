"""Ingestion alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="ingestion")
def ingestion(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Read the sources into a faces artifact."""
    return run_stages(load_config(config), ["ingestion"], ["ingestion"] if refresh else [])
