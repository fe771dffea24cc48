"""Twenty thousand damaged files of every format, two formats at a time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

FORMATS = ("recordio", "arrow", "parquet", "tar", "jpeg", "webp", "png", "bmp")
FILES = 20_000
SEED = 20_250


def fuzz(kind: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("fuzz.py")), kind, str(FILES), str(SEED)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=500, check=False)


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[Any]]]:
    with ThreadPoolExecutor(2) as pool:
        futures = {kind: pool.submit(fuzz, kind) for kind in FORMATS}
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_end_in_faults_or_a_clear_error(kind: str, runs: dict[str, Future[Any]]) -> None:
    done = runs[kind].result()
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert sum(found["outcomes"].values()) == found["files"] == FILES
    assert "unexplained" not in found["outcomes"]
    assert found["grown"] < 2**28
    sound = found["outcomes"].get("accepted", 0) + found["outcomes"].get("whole", 0)
    assert sound < 0.7 * FILES
