"""Damaged inputs of every parser, two at a time: some in every test run, a hundred thousand of each in the slow ones.

The harness limits an input to 5 s of processor time and 1 GB of memory.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

FORMATS = ("recordio", "arrow", "parquet", "tar", "jpeg", "webp", "png", "bmp", "yaml", "bin")
SEED = 20_250


def fuzz(kind: str, files: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("fuzz.py")), kind, str(files), str(SEED)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=7200, check=False)


@pytest.fixture(scope="module", params=[2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def runs(request: pytest.FixtureRequest) -> Iterator[tuple[int, dict[str, Future[Any]]]]:
    with ThreadPoolExecutor(2) as pool:
        futures = {kind: pool.submit(fuzz, kind, request.param) for kind in FORMATS}
        yield request.param, futures
        for future in futures.values():
            future.cancel()


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_end_in_faults_or_a_clear_error(kind: str, runs: tuple[int, dict[str, Future[Any]]]) -> None:
    files, futures = runs
    done = futures[kind].result()
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert sum(found["outcomes"].values()) == found["files"] == files
    assert "unexplained" not in found["outcomes"]
    assert found["grown"] < 2**28
    sound = found["outcomes"].get("accepted", 0) + found["outcomes"].get("whole", 0)
    assert sound < 0.7 * files
