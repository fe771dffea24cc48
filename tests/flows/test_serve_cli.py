"""`gif serve` as a process, and its mistakes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from gif_core.synthetic import draw_jpeg
from tests.recognition_store import fill_store

Gif = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill_store(tmp_path / "store")
    monkeypatch.setenv("GIF_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("GIF_TOKEN", raising=False)
    return tmp_path / "store"


@pytest.mark.slow
def test_gif_serve_answers_until_it_is_ended(store: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "serve", "--model", "latest", "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "GIF_TOKEN": "secret"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            headers = {"Authorization": "Bearer secret"}
            with httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False) as client:
                assert client.get("/health").json()["status"] == "ok"
                assert client.post("/embed", content=draw_jpeg(0, 1, 0)).status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_mistakes_are_told(store: Path, run_gif: Gif) -> None:
    printed = run_gif("serve", "--model", "latest", "--host", "0.0.0.0", code=2)
    assert "--host 0.0.0.0 can be reached from elsewhere: set a token in the environment variable GIF_TOKEN" in printed
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port}: Address already in use" in run_gif("serve", "--port", port, code=2)
    assert "there is no gallery 'staff'" in run_gif(
        "serve", "--model", "latest", "--gallery", "staff", "--port", "0", code=2
    )
