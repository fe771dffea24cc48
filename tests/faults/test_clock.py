"""A clock that jumps by a day in either direction while a run goes on, or stands a day off between two runs."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.artifacts.attempts import MARKER
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, StageName
from tests.finished import digests_of, faults_of

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(LIBRARY is None, reason="needs a clock that can be moved (Debian: libfaketime)"),
]
GIF = [sys.executable, "-m", "flows.cli"]
NEVER: Mapping[StageName, str] = MappingProxyType({})


class Clock:
    """A clock that `gif` reads, and that can be moved while it runs; `time.monotonic` goes on as ever."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder, self.file = folder, folder / "clock"
        self.store = ArtifactStore(str(folder / "store"))
        self.environment = os.environ | {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "GIF_STORE": str(folder / "store"),
            "PREFECT_API_URL": api,
        }
        self.move("+0")

    def move(self, offset: str) -> None:
        """Set the clock off by so much, such as `+1d`."""
        new = self.file.with_suffix(".new")
        new.write_text(offset)
        new.rename(self.file)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*GIF, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, jumps: Mapping[StageName, str] = NEVER) -> str:
        """Run `gif …` to its end, with a jump of the clock when each of these stages begins."""
        process = self.start(*arguments)
        for stage, offset in jumps.items():
            self.wait_for(stage, process)
            self.move(offset)
        printed = process.communicate(timeout=300)[0]
        assert process.returncode == 0, printed
        return printed

    def wait_for(self, stage: StageName, process: subprocess.Popen[str]) -> None:
        while process.poll() is None and not any(
            list((self.folder / "store").glob(f"{stage}/*/{name}")) for name in (f"*/{MARKER}", MANIFEST_FILE)
        ):
            time.sleep(0.01)


@pytest.fixture
def clock(tmp_path: Path, prefect_api: str, tiny_settings: dict[str, object]) -> Clock:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tiny_settings))
    return Clock(tmp_path, prefect_api)


@pytest.fixture
def undisturbed(tmp_path: Path, clock: Clock) -> ArtifactStore:
    clock.run("run", "--config", "run.yaml", "--set", f"store={tmp_path / 'undisturbed'}")
    return ArtifactStore(str(tmp_path / "undisturbed"))


def test_jumps_of_a_day_in_both_directions_cost_a_run_and_what_is_stored_nothing(
    clock: Clock, undisturbed: ArtifactStore
) -> None:
    jumps: dict[StageName, str] = {"embedding": "+1d", "tokenization": "-1d", "evaluation": "+0"}
    clock.run("run", "--config", "run.yaml", jumps=jumps)
    assert digests_of(clock.store) == digests_of(undisturbed)
    for offset in ("-1d", "+1d", "+0"):
        clock.move(offset)
        clock.run("artifacts", "gc", "--yes")
        clock.run("artifacts", "prune", "--keep-runs", "1", "--yes")
        clock.run("run", "--config", "run.yaml")
        assert digests_of(clock.store) == digests_of(undisturbed)
        assert faults_of(clock.store) == []


@pytest.mark.parametrize("offset", ["+1d", "-1d"])
@pytest.mark.parametrize("stage", ["ingestion", "training"])
def test_a_run_that_was_killed_is_carried_on_by_one_whose_clock_is_a_day_off(
    clock: Clock, undisturbed: ArtifactStore, stage: StageName, offset: str
) -> None:
    process = clock.start("run", "--config", "run.yaml")
    clock.wait_for(stage, process)
    process.kill()
    process.communicate()
    published = {ref.stage for ref in clock.store.refs()}
    assert published <= set(STAGES[: STAGES.index(stage) + 1])
    clock.move(offset)
    clock.run("run", "--config", "run.yaml")
    assert digests_of(clock.store) == digests_of(undisturbed)
    assert faults_of(clock.store) == []
    record = next(run for run in list_runs(clock.store) if run.state == "completed")
    assert {name for name, done in record.stages.items() if done.action == "reused"} == published


def test_two_machines_whose_clocks_are_two_days_apart_compute_each_stage_once(
    clock: Clock, undisturbed: ArtifactStore
) -> None:
    clock.move("-1d")
    early = clock.start("run", "--config", "run.yaml")
    clock.wait_for("ingestion", early)
    late = Clock(clock.folder, clock.environment["PREFECT_API_URL"])
    late.file = clock.folder / "late"
    late.environment["FAKETIME_TIMESTAMP_FILE"] = str(late.file)
    late.move("+1d")
    late.run("run", "--config", "run.yaml")
    assert early.wait(300) == 0
    early.communicate()
    done = [record for run in list_runs(clock.store) for record in run.stages.items()]
    computed = [stage for stage, record in done if record.action == "computed"]
    assert sorted(computed) == sorted(STAGES)
    assert digests_of(clock.store) == digests_of(undisturbed)
