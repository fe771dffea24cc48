"""The flow `gif`: faces → vectors → code vectors → codes → model → scores → report (Algorithm 1)."""

from prefect import flow

from flows.stages import Run, flow_store
from gif_core.planning import leave_out_missing_sets, select_stages
from schemas.artifacts import RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import StageName


@flow(name="gif", validate_parameters=True)
def gif(
    config: RunConfig | str = "demo",
    only: StageName | None = None,
    from_stage: StageName | None = None,
    refresh: list[StageName] | None = None,
) -> RunRecord:
    """Train face recognition on identity codes.

    Args:
        config: A preset's name, a YAML file's path, or the settings themselves, on top of their `preset`.
        only: Run this stage only, on stored artifacts.
        from_stage: Begin at this stage, on stored artifacts.
        refresh: Compute these stages again even if they are stored.
    """
    settings = leave_out_missing_sets(load_config(config))
    selected = select_stages(only, from_stage, refresh or ())
    with flow_store(settings) as store:
        return Run.begin(store, settings, selected).go_through(settings, selected, refresh or ())
