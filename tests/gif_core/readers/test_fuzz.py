"""Damaged inputs of every parser, two at a time: some in every test run, a hundred thousand of each in the slow ones.

The harness limits an input to 5 s of processor time and 1 GB of memory. Where atheris is installed (the extra `fuzz`),
the slow ones also follow which code an input executes.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

FORMATS = ("recordio", "arrow", "parquet", "tar", "jpeg", "webp", "png", "bmp", "yaml", "bin", "pth", "safetensors")
PROJECT = Path(__file__).parents[3]
SEED = 20_250
PLAIN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Allocators that reserve no address space ahead: by default ten threads of Arrow at once reserve 1.5 GB, which the
limit would count as if an input had asked for it."""


def fuzz(kind: str, files: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("fuzz.py")), kind, str(files), str(SEED)]
    return subprocess.run(
        command, env=os.environ | PLAIN, capture_output=True, text=True, errors="replace", timeout=7200, check=False
    )


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


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris: pip install '.[fuzz]'")
@pytest.mark.parametrize("kind", FORMATS)
def test_inputs_that_follow_the_executed_code_end_in_faults_or_a_clear_error(
    kind: str, tmp_path: Path, many: Callable[[int], int]
) -> None:
    inputs = many(20_000)
    command = [sys.executable, "-m", "tests.gif_core.readers.guided", kind, str(inputs), str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {inputs} runs" in done.stderr
