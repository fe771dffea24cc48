"""One training at a time, on a real server; a holder that is killed does not keep its slot for ever."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from pathlib import Path
from threading import Thread

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.cli.environment import SERVER
from flows.deployment import ensure_limit
from schemas.execution import ExecutionConfig
from tasks.limits import TRAINING_LIMIT, training_slot

PROJECT = Path(__file__).parents[2]
HOLDER = """
import sys
from schemas.execution import ExecutionConfig
from tasks.limits import training_slot
with training_slot(ExecutionConfig()):
    print("held", flush=True)
    sys.stdin.read()
"""
Server = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


@contextmanager
def holder(api: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains, until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=PROJECT,
        env={**os.environ, "PREFECT_API_URL": api, "PREFECT_LOGGING_LEVEL": "CRITICAL"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        let_go(process)


def let_go(process: subprocess.Popen[str]) -> None:
    """End the training so that its slot is free at once, unless it was killed: the dead keep theirs for a minute."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Waiting:
    """A training of this process, with its settings, that waits for its slot."""

    def __init__(self) -> None:
        self.trains = False
        self.thread = Thread(target=copy_context().run, args=(self._train,))
        self.thread.start()

    def _train(self) -> None:
        with training_slot(ExecutionConfig()):
            self.trains = True


def taken() -> int:
    with get_client(sync_client=True) as client:
        return client.read_global_concurrency_limit_by_name(TRAINING_LIMIT).active_slots


def test_a_second_training_waits_for_the_end_of_the_first(prefect: str, wait: Callable[..., None]) -> None:
    with training_slot(ExecutionConfig()):
        pass  # nobody has set a limit yet, or nobody trains
    ensure_limit()
    with holder(prefect) as first:
        assert taken() == 1
        second = Waiting()
        second.thread.join(4)
        assert not second.trains
        assert first.stdin is not None
        first.stdin.close()
        wait(lambda: second.trains, seconds=60, what="its turn")
    second.thread.join()
    assert taken() == 0


def test_machines_that_train_together_do_not_wait_for_each_other(prefect: str) -> None:
    ensure_limit()
    with holder(prefect), training_slot(ExecutionConfig(nodes="2", rendezvous="first:29500")):
        assert taken() == 1


@pytest.mark.slow
def test_the_slot_of_a_killed_training_is_free_again_though_the_server_was_killed_too(
    tmp_path: Path, port: int, start_server: Server, wait: Callable[..., None]
) -> None:
    api = f"http://127.0.0.1:{port}/api"
    with temporary_settings({PREFECT_API_URL: api}):
        with start_server(tmp_path, port, **SERVER) as server:
            ensure_limit()
            with holder(api) as first:
                first.kill()
            server.kill()
        with start_server(tmp_path, port, **SERVER):
            assert taken() == 1, "it is still held by the dead"
            second = Waiting()
            wait(lambda: second.trains, seconds=180, what="its turn")
            second.thread.join()
