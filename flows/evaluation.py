"""Evaluation alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="evaluation")
def evaluation(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Verify held-out identities with the stored model."""
    return run_stages(load_config(config), ["evaluation"], ["evaluation"] if refresh else [])
