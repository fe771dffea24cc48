"""Whole runs that meet a flipped bit in any kind of file, or a disk that fills up in the middle of any stage."""

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from flows.pipeline import gif
from gif_core.artifacts import ArtifactStore, FileDamagedError, find_leftovers, list_runs, remove_leftovers
from gif_core.artifacts.attempts import MARKER
from gif_core.planning.preflight import RESERVE
from schemas.artifacts import ArtifactRef
from schemas.errors import GifError
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName
from tests.finished import Digests, digests_of, faults_of

pytestmark = pytest.mark.usefixtures("prefect")
SEED = 20_250
EACH_KIND = 100
"""Bits that are flipped in every kind of file."""


@pytest.fixture(scope="module")
def finished(prefect_api: str, tiny_settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A small run that has gone through all stages and that nobody has disturbed."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    config = load_config({**tiny_settings, "store": str(tmp_path_factory.mktemp("store"))})
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        gif(config)
    return config


def copy_of(finished: RunConfig, folder: Path, stages: tuple[StageName, ...] = STAGES) -> RunConfig:
    """The same run in another store, which holds these stages only."""
    others = [stage for stage in STAGES if stage not in stages]
    shutil.copytree(finished.store, folder, ignore=shutil.ignore_patterns(*others, "checkpoints"))
    return finished.model_copy(update={"store": str(folder)})


def kinds_of(store: ArtifactStore) -> dict[tuple[StageName, str], tuple[ArtifactRef, str]]:
    """One file of every kind: those of a stage whose names differ in digits only are of one kind."""
    found = {}
    for ref in store.refs():
        for file in store.open(ref).manifest.files:
            if file.size:
                found[ref.stage, re.sub(r"\d+", "N", file.name)] = ref, file.name
    return found


def flip(store: ArtifactStore, ref: ArtifactRef, name: str, bit: int) -> Path:
    """Flip one bit of a stored file."""
    path = Path(str(store.storage.local_path(f"{ref.stage}/{ref.key}/{store.open(ref).stored(name).path}")))
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return path


def test_every_one_of_many_flipped_bits_in_every_kind_of_file_is_noticed_by_whoever_opens_it(
    finished: RunConfig, tmp_path: Path
) -> None:
    store, draw = ArtifactStore(copy_of(finished, tmp_path / "store").store), random.Random(SEED)
    for ref, name in kinds_of(store).values():
        for _ in range(EACH_KIND):
            bit = draw.randrange(8 * store.open(ref).stored(name).size)
            path = flip(store, ref, name, bit)
            with pytest.raises(FileDamagedError, match=re.escape(name)):
                store.open(ref).path(name)
            flip(store, ref, name, bit)
        assert store.open(ref).path(name) == path, "whole again"


@pytest.mark.slow
@pytest.mark.timeout(10_800)
def test_whole_runs_that_meet_a_flipped_bit_in_any_kind_of_file_end_with_the_bytes_of_one_that_met_none(
    finished: RunConfig, tmp_path: Path, many: Callable[[int], int]
) -> None:
    expected, draw, met = digests_of(ArtifactStore(finished.store)), random.Random(SEED), dict[str, int]()
    kinds = list(kinds_of(ArtifactStore(finished.store)).values())
    for number in range(many(len(kinds) * -(-EACH_KIND // len(kinds)))):
        config = copy_of(finished, tmp_path / str(number))
        store, (ref, name) = ArtifactStore(config.store), kinds[number % len(kinds)]
        flip(store, ref, name, draw.randrange(8 * store.open(ref).stored(name).size))
        later = list(STAGES[STAGES.index(ref.stage) + 1 :])
        actions = {stage: done.action for stage, done in gif(config, refresh=later).stages.items()}
        left = faults_of(store)
        if actions[ref.stage] == "reused":
            assert [name in fault for fault in left] == [True], "no stage reads it, and the check names it"
            gif(config, refresh=[ref.stage])
        else:
            met[f"{ref.stage}/{name}"] = met.get(f"{ref.stage}/{name}", 0) + 1
        assert faults_of(store) == []
        assert digests_of(store) == expected
        shutil.rmtree(config.store)
    assert {place.split("/")[0] for place in met} == set(STAGES[:-1]), "files of every stage that another one reads"
    print(f"{number + 1} runs met {sum(met.values())} flipped bits: {met}")  # noqa: T201


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for a small run and not much more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={RESERVE // 2**20 + 64}m"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


LOOKED_AT = 0.02
"""Seconds in which a stage has looked at the free room; then it begins to write."""


class Filling(Thread):
    """Fills a disk, and leaves some bytes of it, as soon as a stage has begun to write."""

    def __init__(self, disk: Path, stage: StageName, left: int) -> None:
        super().__init__(daemon=True)
        self.disk, self.stage, self.left = disk, stage, left
        self.ballast, self.ended = disk / "ballast", False

    def run(self) -> None:
        while not self.ended and not list(self.disk.glob(f"store/{self.stage}/*/*/{MARKER}")):
            time.sleep(0.001)
        time.sleep(LOOKED_AT)
        with self.ballast.open("wb") as file, suppress(OSError):  # the stage may be faster
            free = shutil.disk_usage(self.disk).free
            os.posix_fallocate(file.fileno(), 0, max(1, free - self.left))

    def end(self) -> None:
        self.ended = True
        self.join()
        self.ballast.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 2**14, 2**17])
@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_that_fills_up_inside_any_stage_loses_nothing_and_says_so_and_the_next_run_completes(
    finished: RunConfig, disk: Path, stage: StageName, left: int
) -> None:
    expected = digests_of(ArtifactStore(finished.store))
    config = copy_of(finished, disk / "store", STAGES[: STAGES.index(stage)])
    store = ArtifactStore(config.store)
    before, filling = digests_of(store), Filling(disk, stage, left)
    filling.start()
    try:
        failed = fails(config)
    finally:
        filling.end()
    assert before.items() <= digests_of(store).items() <= expected.items()
    assert faults_of(store) == []
    assert not failed or "is full" in failed or "make room" in failed
    assert gif(config).state == "completed"
    check_is_whole(store, expected)


def fails(config: RunConfig) -> str:
    """What a run says when it fails; nothing when it does not."""
    try:
        gif(config)
    except GifError as error:
        return str(error)
    return ""


def check_is_whole(store: ArtifactStore, expected: Digests) -> None:
    assert list_runs(store)[0].state == "completed"
    assert faults_of(store) == []
    assert digests_of(store) == expected
    remove_leftovers(store, find_leftovers(store))
    assert find_leftovers(store, older_than=0) == []
