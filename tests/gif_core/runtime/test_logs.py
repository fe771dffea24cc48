"""What a run tells of itself: the memory that it held, and lines that programs can read."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gif_core.runtime import JsonLines, add_log_fields, log_fields, with_log_fields

PROJECT = Path(__file__).parents[3]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


HELD = """
from gif_core.runtime.memory import MemoryWatch
with MemoryWatch(0.01) as before:
    pass
with MemoryWatch(0.01) as watch:
    held = bytearray(200 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    while (watch.peak or 0) < before.peak + 150 * 2**20:
        pass
    del held
print(watch.peak - before.peak)
"""


@linux
def test_the_peak_has_what_was_held_and_given_back() -> None:
    """In a process of its own: this one has servers below it, whose memory comes and goes."""
    done = subprocess.run([sys.executable, "-c", HELD], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert 150 * 2**20 < int(done.stdout) < 300 * 2**20


OF_A_CHILD = """
import subprocess, sys
from gif_core.runtime.memory import MemoryWatch
hold = "held = b'x' * (200 * 2**20); print('held', flush=True); input()"
with MemoryWatch(0.01) as before:
    pass
command = [sys.executable, "-c", hold]
with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
    child.stdout.readline()
    with MemoryWatch(0.01) as watch:
        pass
    child.communicate("\\n")
print(watch.peak - before.peak)
"""


@linux
def test_the_peak_has_what_a_started_process_holds() -> None:
    done = subprocess.run([sys.executable, "-c", OF_A_CHILD], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 190 * 2**20


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream, logger = io.StringIO(), logging.getLogger("gif_core.test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_lines_name_run_stage_and_artifact_and_nothing_afterwards(lines: io.StringIO) -> None:
    logger = logging.getLogger("gif_core.test")
    with log_fields(run="r1"):
        with log_fields(stage="training"):
            add_log_fields(artifact="training/abc")
            logger.warning("it is %s", "\N{SNOWMAN}")
        logger.warning("between")
    logger.warning("after")
    first, second, third = map(json.loads, lines.getvalue().splitlines())
    assert {name: first[name] for name in ("run", "stage", "artifact", "level", "message")} == {
        "run": "r1",
        "stage": "training",
        "artifact": "training/abc",
        "level": "WARNING",
        "message": "it is \N{SNOWMAN}",
    }
    assert (second["run"], "stage" in second, "artifact" in second) == ("r1", False, False)
    assert "run" not in third


def test_lines_of_a_thread_are_about_what_it_was_started_for(lines: io.StringIO) -> None:
    with log_fields(run="r1"):
        thread = threading.Thread(
            target=with_log_fields(logging.getLogger("gif_core.test").warning), args=("from afar",)
        )
    thread.start()
    thread.join()
    assert json.loads(lines.getvalue())["run"] == "r1"


def test_a_traceback_stays_in_its_line(lines: io.StringIO) -> None:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logging.getLogger("gif_core.test").exception("it broke")
    (line,) = lines.getvalue().splitlines()
    assert "ZeroDivisionError" in json.loads(line)["traceback"]
