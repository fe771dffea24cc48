"""A store in which every stage of a configuration is published, as a run leaves it, without its contents."""

from collections.abc import Sequence

from gif_core.artifacts import ArtifactStore
from gif_core.planning import identify_stage
from schemas.files import REPORT_FILE
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, StageName


def store_everything(config: RunConfig, stages: Sequence[StageName] = STAGES) -> ArtifactStore:
    store, made = ArtifactStore(config.store), {}
    for stage in stages:
        identity = identify_stage(store, config, stage, {name: made[name] for name in INPUTS[stage]})
        if store.find(stage, identity.ref.key):
            made[stage] = store.open(identity.ref)
            continue
        with store.draft(identity.ref, identity.settings, identity.made_from) as draft:
            (draft.folder / REPORT_FILE).write_text("<!doctype html>")
            made[stage] = store.open(store.publish(draft))
    return store
