"""Reporting alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="reporting")
def reporting(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Write the report of what is stored."""
    return run_stages(load_config(config), ["reporting"], ["reporting"] if refresh else [])
