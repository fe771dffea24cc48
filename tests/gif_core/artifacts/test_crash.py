"""A writer is killed at every single file operation of a publication, one after the other."""

import os
import signal
import sys
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore, check_artifacts, find_leftovers, remove_leftovers
from gif_core.artifacts.attempts import MARKER
from tests.forked import run_forked

OPERATIONS = {"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "fcntl.flock"}
KEY = "a" * 64


def publish(store: ArtifactStore, content: str, *, replace: bool, resume: bool = False) -> None:
    with store.draft(store.ref("training", KEY), {}, {}, resume=resume) as draft:
        (draft.folder / ".work").mkdir(exist_ok=True)
        (draft.folder / ".work" / "journal").write_text(content)
        for name in ("backbone", "head"):
            (draft.folder / name).write_text(content)
        store.publish(draft, replace=replace)


def publish_and_die(store: ArtifactStore, content: str, number: int, *, replace: bool, resume: bool) -> bool:
    """Publish in a child process that kills itself at file operation `number`; True if it got to the end."""

    def work() -> None:
        seen = 0

        def count(event: str, _: object) -> None:
            nonlocal seen
            if event in OPERATIONS:
                seen += 1
                if seen > number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        publish(store, content, replace=replace, resume=resume)

    code = run_forked(work)
    assert code in (0, -signal.SIGKILL)
    return code == 0


def contents(store: ArtifactStore) -> set[str]:
    artifact = store.open(store.ref("training", KEY))
    return {artifact.path(name).read_text() for name in ("backbone", "head")}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_a_kill_at_any_file_operation_leaves_nothing_or_the_whole_artifact(
    tmp_path: Path, replace: bool, resume: bool
) -> None:
    outcomes = set()
    for number in range(200):
        store = ArtifactStore(str(tmp_path / str(number)))
        if replace:
            publish(store, "old", replace=False)
        finished = publish_and_die(store, "new", number, replace=replace, resume=resume)
        assert [check.fault for check in check_artifacts(store, store.refs()) if check.fault] == []
        markers = (tmp_path / str(number)).rglob(MARKER)
        assert all(marker.read_text().startswith(f"training/{KEY}") for marker in markers), "each is there whole"
        found = store.find("training", KEY)
        outcomes.add(tuple(contents(store)) if found else ())
        publish(store, "newer", replace=True, resume=resume)
        assert contents(store) == {"newer"}
        remove_leftovers(store, find_leftovers(store))
        assert contents(store) == {"newer"}
        if finished:
            break
    assert number > 10
    assert outcomes == ({("old",), ("new",)} if replace else {(), ("new",)})
