"""Training alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="training")
def training(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Train a backbone on the stored faces, codes and code vectors (Eq. 10)."""
    return run_stages(load_config(config), ["training"], ["training"] if refresh else [])
