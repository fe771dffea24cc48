"""Which checkpoints of a computation stay: the newest few that are whole, and always the one that was just written."""

from pathlib import Path

import pytest
import torch

from gif_core.artifacts import ArtifactStore, Checkpoints

FOLDER = "checkpoints/training/test"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_url"))


def commit(checkpoints: Checkpoints, step: int) -> str:
    folder = checkpoints.new_folder(step)
    file = checkpoints.write(folder, "weights", {"weight": torch.full((4,), float(step))}, {})
    checkpoints.commit(folder, step, [file], {})
    return folder


def steps(store: ArtifactStore) -> list[int]:
    """Steps of all there are, whole or not."""
    return sorted({int(file.path.split("/")[3].split("-")[0]) for file in store.storage.find(FOLDER)})


def newest_step(checkpoints: Checkpoints) -> int | None:
    found = checkpoints.newest()
    return found.state.step if found else None


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("lost", [False, True], ids=["changed", "lost"])
def test_a_run_that_begins_again_below_damaged_checkpoints_keeps_its_own(
    store: ArtifactStore, keep: int, lost: bool
) -> None:
    before = Checkpoints(store, FOLDER, keep=keep)
    for folder in [commit(before, step) for step in range(10, 10 + keep)]:
        if lost:
            store.storage.remove(f"{folder}/weights")
        else:
            store.storage.replace(f"{folder}/weights", b"damaged")
    again = Checkpoints(store, FOLDER, keep=keep)
    assert newest_step(again) is None
    for step in (3, 6, 9):
        commit(again, step)
        assert newest_step(Checkpoints(store, FOLDER)) == step
    assert steps(store) == [3, 6, 9][-keep:]


def test_the_one_that_a_run_goes_on_from_stays_beside_the_next(store: ArtifactStore) -> None:
    before = Checkpoints(store, FOLDER, keep=2)
    commit(before, 5)
    store.storage.replace(f"{commit(before, 10)}/weights", b"damaged")
    again = Checkpoints(store, FOLDER, keep=2)
    assert newest_step(again) == 5
    commit(again, 8)
    assert steps(store) == [5, 8]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_that_is_behind_another_keeps_its_own_and_leaves_the_end_of_the_other(
    store: ArtifactStore, keep: int
) -> None:
    ahead, behind = (Checkpoints(store, FOLDER, keep=keep) for _ in range(2))
    assert newest_step(behind) is None
    for step in range(18, 21):
        commit(ahead, step)
    for step in (3, 6):
        commit(behind, step)
        assert step in steps(store)
        assert newest_step(ahead) == 20
    assert len(steps(store)) == keep + 1
    commit(ahead, 21)
    assert steps(store) == [20, 21][-keep:]
