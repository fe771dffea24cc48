"""A clock that jumps by a day in either direction while a run goes on, or stands a day off between two runs."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.artifacts.attempts import MARKER
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, StageName
from tests.conftest import PROJECT
from tests.faults.stages_alone import start
from tests.finished import Digests, digests_of, faults_of

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(LIBRARY is None, reason="needs a clock that can be moved (Debian: libfaketime)"),
]
RUN = ("tests.faults.stages_alone",)
GIF = ("flows.cli",)
NEVER: Mapping[StageName, str] = MappingProxyType({})


class Clock:
    """A clock that a process reads, and that can be moved while it runs; `time.monotonic` goes on as ever."""

    def __init__(self, folder: Path, name: str = "clock", offset: str = "+0") -> None:
        self.folder, self.file = folder / "store", folder / name
        self.store = ArtifactStore(str(self.folder))
        self.environment = os.environ | {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "GIF_STORE": str(self.folder),
        }
        self.move(offset)

    def move(self, offset: str) -> None:
        """Set the clock off by so much, such as `+1d`."""
        new = self.file.with_suffix(".new")
        new.write_text(offset)
        new.rename(self.file)

    def start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.faults.tolerant_sleep", module, *arguments]
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, module: str, *arguments: str, jumps: Mapping[StageName, str] = NEVER) -> None:
        """Run a module to its end, with a jump of the clock when each of these stages begins."""
        process = self.start(module, *arguments)
        for stage, offset in jumps.items():
            self.wait_for(stage, process)
            self.move(offset)
        printed = process.communicate(timeout=500)[0]
        assert process.returncode == 0, printed

    def wait_for(self, stage: StageName, process: subprocess.Popen[str]) -> None:
        while process.poll() is None and not any(
            list(self.folder.glob(f"{stage}/*/{name}")) for name in (f"*/{MARKER}", MANIFEST_FILE)
        ):
            time.sleep(0.01)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Digests:
    folder = str(tmp_path_factory.mktemp("undisturbed"))
    process = start(folder)
    process.join()
    assert process.exitcode == 0
    return digests_of(ArtifactStore(folder))


def test_jumps_of_a_day_in_both_directions_cost_a_run_and_what_is_stored_nothing(
    clock: Clock, undisturbed: Digests
) -> None:
    jumps: dict[StageName, str] = {"embedding": "+1d", "tokenization": "-1d", "evaluation": "+0"}
    clock.run(*RUN, str(clock.folder), jumps=jumps)
    assert digests_of(clock.store) == undisturbed
    for offset in ("-1d", "+1d"):
        clock.move(offset)
        clock.run(*GIF, "artifacts", "gc", "--yes")
        clock.run(*GIF, "artifacts", "prune", "--keep-runs", "1", "--yes")
        assert digests_of(clock.store) == undisturbed
        assert faults_of(clock.store) == []


@pytest.mark.parametrize("offset", ["+1d", "-1d"])
@pytest.mark.parametrize("stage", ["ingestion", "training"])
def test_a_run_that_was_killed_is_carried_on_by_one_whose_clock_is_a_day_off(
    clock: Clock, undisturbed: Digests, stage: StageName, offset: str
) -> None:
    process = clock.start(*RUN, str(clock.folder))
    clock.wait_for(stage, process)
    process.kill()
    process.communicate()
    published = digests_of(clock.store)
    assert published.items() < undisturbed.items()
    clock.move(offset)
    clock.run(*RUN, str(clock.folder))
    assert digests_of(clock.store) == undisturbed
    assert faults_of(clock.store) == []
    assert {run.state for run in list_runs(clock.store)} == {"interrupted", "completed"}


def test_two_machines_whose_clocks_are_two_days_apart_compute_each_stage_once(
    clock: Clock, undisturbed: Digests
) -> None:
    clock.move("-1d")
    early = clock.start(*RUN, str(clock.folder))
    clock.wait_for("ingestion", early)
    Clock(clock.folder.parent, "late", "+1d").run(*RUN, str(clock.folder))
    printed = early.communicate(timeout=500)[0]
    assert early.returncode == 0, printed
    assert digests_of(clock.store) == undisturbed
    attempts = {path.parent.parent for path in clock.folder.glob("*/*/*/*") if path.parts[-4] in STAGES}
    assert len(attempts) == len(STAGES), "one attempt a stage"
    assert len([folder for key in attempts for folder in key.glob("*-*")]) == len(STAGES)
