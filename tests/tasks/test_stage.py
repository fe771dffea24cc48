"""A stage's task takes its identity from the flow, and computes it again only when an input has changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore, Draft, Inputs
from gif_core.planning import StageIdentity, identify_stage
from schemas.artifacts import ArtifactRef
from schemas.run import RunConfig
from schemas.stages import StageName
from tasks import stage as module
from tasks.stage import StageRunner


@pytest.fixture(autouse=True)
def computed(monkeypatch: pytest.MonkeyPatch) -> list[StageName]:
    """The stages whose identity a task has computed; nothing is shown to Prefect."""
    stages: list[StageName] = []

    def identify(store: ArtifactStore, config: RunConfig, stage: StageName, inputs: Inputs) -> StageIdentity:
        stages.append(stage)
        return identify_stage(store, config, stage, inputs)

    monkeypatch.setattr(module, "identify_stage", identify)
    monkeypatch.setattr(module, "create_table_artifact", lambda **_: None)
    return stages


def fill(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
    (draft.folder / "file").write_text(draft.ref.stage)


def run(stage: StageName, config: RunConfig, identity: StageIdentity | None, *inputs: ArtifactRef) -> ArtifactRef:
    ref: ArtifactRef = StageRunner(stage, fill, False, None).run(config, {ref.stage: ref for ref in inputs}, identity)
    return ref


def test_the_identity_of_the_flow_is_used_and_not_computed_again(tiny: RunConfig, computed: list[StageName]) -> None:
    identity = identify_stage(ArtifactStore(tiny.store), tiny, "ingestion", {})
    assert run("ingestion", tiny, identity) == identity.ref
    assert computed == []


def test_an_identity_is_computed_where_the_flow_has_none_or_an_input_was_made_again(
    tiny: RunConfig, computed: list[StageName]
) -> None:
    store = ArtifactStore(tiny.store)
    faces = run("ingestion", tiny, None)
    assert computed == ["ingestion"]
    now = identify_stage(store, tiny, "embedding", {"ingestion": store.open(faces)})
    source = now.made_from["ingestion"].model_copy(update={"digest": "0" * 64})
    vectors = run("embedding", tiny, replace(now, made_from={"ingestion": source}), faces)
    assert computed == ["ingestion", "embedding"]
    assert store.open(vectors).manifest.inputs == now.made_from


def test_the_manifest_has_the_hours_and_the_memory_of_the_gpus_that_the_work_used(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is a program of its name that answers as it does."""
    memory, driver = tmp_path / "memory", tmp_path / "nvidia-smi"
    memory.write_text("10\n10\n")
    driver.write_text(f"#!/bin/sh\n/bin/cat {memory}\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def compute(config: RunConfig, inputs: Inputs, draft: Draft) -> None:
        memory.write_text("2010\n10\n")
        fill(config, inputs, draft)

    ref = StageRunner("ingestion", compute, False, None).run(tiny, {}, None)
    manifest = ArtifactStore(tiny.store).open(ref).manifest
    assert manifest.peak_gpu_memory == 2000 * 2**20
    assert 0 < manifest.gpu_hours * 3600 <= manifest.seconds
