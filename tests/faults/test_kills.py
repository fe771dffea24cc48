"""kill -9 at random moments of all stages: what is published stays whole, and the end is that of an undisturbed run."""

import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore, find_leftovers, list_runs, remove_leftovers
from gif_core.artifacts.attempts import MARKER
from schemas.files import MANIFEST_FILE
from schemas.stages import STAGES, StageName
from tests.faults.stages_alone import start
from tests.finished import digests_of, faults_of


class Killer:
    """Kills runs, each some time after a stage has begun."""

    def __init__(self, seconds: dict[StageName, float], seed: int) -> None:
        """`seconds` are those of each stage in a run that nobody disturbs."""
        self.latest, self.killed = dict(seconds), dict.fromkeys(STAGES, 0)
        self.random = random.Random(seed)

    def kill_in(self, stage: StageName, folder: Path) -> None:
        """Kill a run at a random moment of a stage.

        A kill that came before or after the stage is not counted. After it, the next one comes sooner, else later.
        """
        process, delay = start(str(folder)), self.random.uniform(0, self.latest[stage])
        begun = wait_for_stage(stage, folder, process)
        process.join(max(0.0, begun + delay - time.monotonic()))
        process.kill()
        process.join()
        if list(folder.glob(f"{stage}/*/{MANIFEST_FILE}")):
            self.latest[stage] *= 0.6
        elif list_runs(ArtifactStore(str(folder)))[0].current == stage:
            self.latest[stage] *= 1.05
            self.killed[stage] += 1


def wait_for_stage(stage: StageName, store: Path, process: BaseProcess) -> float:
    """The moment at which the stage is seen to write, or to have written, or at which the process has ended."""
    while process.is_alive() and not any(
        list(store.glob(f"{stage}/*/{name}")) for name in (f"*/{MARKER}", MANIFEST_FILE)
    ):
        time.sleep(0.002)
    return time.monotonic()


def finish(process: BaseProcess) -> None:
    process.join(500)
    assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.timeout(10_800)
def test_kills_at_random_moments_of_all_stages_leave_the_bytes_of_a_run_that_nobody_disturbed(
    tmp_path: Path, many: Callable[[int], int]
) -> None:
    wanted, runs = many(301), 0
    undisturbed = ArtifactStore(str(tmp_path / "undisturbed"))
    finish(start(str(tmp_path / "undisturbed")))
    expected = digests_of(undisturbed)
    killer = Killer({ref.stage: undisturbed.open(ref).manifest.seconds for ref in undisturbed.refs()}, wanted)
    while min(killer.killed.values()) < -(-wanted // len(STAGES)):
        runs, folder = runs + 1, tmp_path / f"store-{runs}"
        store = ArtifactStore(str(folder))
        for stage in STAGES:
            killer.kill_in(stage, folder)
            assert digests_of(store).items() <= expected.items(), "nothing half or wrong is published"
            assert faults_of(store) == []
        finish(start(str(folder)))
        assert digests_of(store) == expected
        assert {ref.stage for ref in store.refs()} == set(STAGES)
        remove_leftovers(store, find_leftovers(store))
        assert find_leftovers(store, older_than=0) == []
        shutil.rmtree(folder)
        print(runs, sum(killer.killed.values()), "kills:", killer.killed, flush=True)  # noqa: T201
