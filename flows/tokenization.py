"""Tokenization alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="tokenization")
def tokenization(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Turn the stored code vectors into identity codes."""
    return run_stages(load_config(config), ["tokenization"], ["tokenization"] if refresh else [])
