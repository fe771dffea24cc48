"""Two runs want the same artifact at the same moment: one makes it, the other waits, and no dead one is in the way."""

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gif_core.artifacts import ArtifactStore, find_leftovers, leases, only_one, remove_leftovers
from gif_core.artifacts.attempts import attempt_name
from gif_core.artifacts.leases import LEASES
from tests.faults.making import KEY, make

SCRIPT = Path(__file__).with_name("making.py")
PROJECT = Path(__file__).parents[2]


@contextmanager
def making(store: ArtifactStore, words: str) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, str(SCRIPT), store.storage.url, words], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=PROJECT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def leases_of(store: ArtifactStore) -> list[str]:
    return [file.path for file in store.storage.find(LEASES)]


def lease_path(number: int = 1) -> str:
    return f"{LEASES}/training-{KEY}-{number:06d}"


def lease_of_another_machine(store: ArtifactStore, number: int = 1) -> str:
    store.storage.create(lease_path(number), b'{"holder": "otherhost-1-abc", "renewals": 0}')
    return lease_path(number)


def renewals_of(store: ArtifactStore, path: str) -> int:
    return int(json.loads(store.storage.read(path))["renewals"])


def test_of_two_processes_at_once_one_makes_it_and_the_other_finds_it(store: ArtifactStore) -> None:
    with making(store, "one") as one, making(store, "two") as two:
        first = one if select.select([one.stdout, two.stdout], [], [], 60)[0][0] is one.stdout else two
        second = two if first is one else one
        assert first.stdout
        assert second.stderr
        assert first.stdout.readline() == "making\n"
        assert "is being computed by another run" in second.stderr.readline()
        assert first.communicate("go on\n", timeout=60)[0] == "made\n"
        assert second.communicate(timeout=60)[0] == "found\n"
    assert leases_of(store) == []
    assert len({file.path.split("/")[2] for file in store.storage.find("training")}) == 2


def test_a_stale_lease_of_a_killed_holder_blocks_nobody(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    with making(store, "killed") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "making\n"
        assert lease_path() in leases_of(store)
        holder.kill()
        holder.wait()
        assert make(store.storage.url, "next") == "made"
    assert "which has ended: taking over" in caplog.text
    assert leases_of(store) == []
    remove_leftovers(store, find_leftovers(store))
    assert store.open(store.ref("training", KEY)).path("model").read_text() == "next"
    assert find_leftovers(store, older_than=-60) == []


def test_a_lease_of_another_machine_is_waited_for_while_it_is_renewed_and_taken_when_it_is_not(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "STALE_SECONDS", 2.0)
    path = lease_of_another_machine(store)
    now, renewals = 100.0, [100.0]

    def sleep(_: float) -> None:
        """Time passes between two looks at the lease; at every second one of them it is renewed, eight times."""
        nonlocal now
        now += 0.9
        if now - renewals[-1] > 1.5 and len(renewals) <= 8:
            store.storage.replace(path, b'{"holder": "otherhost-1-abc", "renewals": %d}' % len(renewals))
            renewals.append(now)

    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    assert make(store.storage.url, "waited") == "made"
    assert len(renewals) == 1 + 8, "it was waited for while it was renewed in time"
    assert 2.0 < now - renewals[-1] < 3.0
    assert "otherhost-1-abc: waiting for it" in caplog.text
    assert "otherhost-1-abc, which has ended: taking over" in caplog.text
    assert leases_of(store) == []


def test_a_holder_renews_its_lease_and_stops_when_another_has_taken_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, wait, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.1)
    with only_one(store.storage, store.ref("training", KEY)):
        wait(lambda: renewals_of(store, lease_path()) >= 2, seconds=20, what="two renewals")
        other = lease_of_another_machine(store, 2)
        wait(lambda: "another run has taken over" in caplog.text, seconds=20, what="the message")
    assert leases_of(store) == [other]


def test_of_many_who_find_a_stale_lease_one_takes_it_at_a_time(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 1.0)
    monkeypatch.setattr(leases, "STALE_SECONDS", 5.0)
    lease_of_another_machine(store)
    inside, most, entered = 0, 0, []

    def work() -> None:
        nonlocal inside, most
        with only_one(store.storage, store.ref("training", KEY)):
            inside += 1
            most = max(most, inside)
            entered.append(attempt_name())
            time.sleep(0.1)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, len(entered)) == (1, 3)
    assert leases_of(store) == []


def test_an_unreadable_lease_ends_by_itself(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(leases, "STALE_SECONDS", 0.2)
    store.storage.create(lease_path(), b"")
    assert make(store.storage.url, "x") == "made"


def test_what_a_living_lease_is_for_is_never_swept(store: ArtifactStore) -> None:
    attempt, checkpoint = f"training/{KEY}/otherhost-1-abc/half", f"checkpoints/training/{KEY}-0a1b2c/7-ff/state.json"
    for path in (attempt, checkpoint):
        store.storage.replace(path, b"half")
    with only_one(store.storage, store.ref("training", KEY)):
        assert find_leftovers(store, older_than=-60) == []
    swept = [leftover.path for leftover in find_leftovers(store, older_than=-60)]
    assert swept == [attempt.rpartition("/")[0], f"checkpoints/training/{KEY}-0a1b2c"]
