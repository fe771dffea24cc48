"""A run of which every stage is stored: it is recorded, and nothing else is started."""

import time
from collections.abc import Mapping, Sequence

from gif_core.artifacts import ArtifactStore, begin_run, move_tag, save_run
from gif_core.planning.plan import StagePlan, plan_stages
from schemas.artifacts import RunRecord, StageRecord
from schemas.run import RunConfig
from schemas.stages import StageName


def is_cached(plans: Mapping[StageName, StagePlan], selected: Sequence[StageName]) -> bool:
    """Whether nothing has to be computed."""
    return all(plans[stage].action == "reuse" for stage in selected)


def is_scored(config: RunConfig) -> bool:
    """Whether the scores of a run are stored."""
    return plan_stages(ArtifactStore(config.store), config)["evaluation"].action == "reuse"


def record_cached(
    store: ArtifactStore, config: RunConfig, plans: Mapping[StageName, StagePlan], selected: Sequence[StageName]
) -> RunRecord:
    """Record the run and tag its artifacts `latest`, as the flow does when it reuses them."""
    record = begin_run(store, config)
    stages: dict[StageName, StageRecord] = {}
    for stage in selected:
        started = time.monotonic()
        move_tag(store, "latest", plans[stage].ref)
        stages[stage] = StageRecord(key=plans[stage].ref.key, action="reused", seconds=time.monotonic() - started)
    return save_run(store, record, stages=stages, state="completed")
