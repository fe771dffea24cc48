"""Threads of PyTorch and FAISS that wait for each other leave the processors to others where these need them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gif_core
from tests.conftest import PROJECT

PROGRAM = "import gif_core.runtime.devices, torch, faiss"
FREE, FULL, PRESSED = "0.1 9.0 9.0 2/300 1", "0.1 0.1 0.1 9/300 1", "some avg10=55.1 avg60=0.0\nfull avg10=0.0"


@pytest.mark.parametrize(
    ("load", "pressure", "found"),
    [
        (FREE, "some avg10=0.00 avg60=55", False),
        (FREE, PRESSED, True),
        (FULL, None, True),
        (None, None, False),
        ("", "", False),
        ("unknown load", "some avg10=x", False),
        ("", PRESSED, True),
    ],
)
def test_a_machine_is_busy_when_as_many_others_run_or_some_had_to_wait(
    load: str | None, pressure: str | None, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for name, content in (("LOAD", load), ("PRESSURE", pressure)):
        monkeypatch.setattr(gif_core, name, tmp_path / name)
        if content is not None:
            (tmp_path / name).write_text(content)
    assert gif_core._is_busy() is found


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP says how it waits")
def test_they_sleep_on_a_busy_machine_unless_the_user_says_otherwise() -> None:
    usual = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert policies(usual) == {"PASSIVE"}
        assert policies(usual | {"OMP_WAIT_POLICY": "active"}) == {"ACTIVE"}
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def policies(environment: dict[str, str]) -> set[str]:
    """What every OpenMP in a process says of itself."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT,
        env=environment | {"OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in run.stderr.splitlines() if "OMP_WAIT_POLICY" in line]
    return {line.split("'")[1] for line in lines}
