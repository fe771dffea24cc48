"""Separation alone, on what the store holds."""

from prefect import flow

from flows.stages import run_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig


@flow(name="separation")
def separation(config: RunConfig | str = "demo", refresh: bool = False) -> RunRecord:
    """Spread the stored identity vectors over the sphere (Eq. 4 to 6)."""
    return run_stages(load_config(config), ["separation"], ["separation"] if refresh else [])
