"""`gif` in this process, and in processes that have everything imported already: seconds less for each."""

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest

from flows.cli import main
from schemas.stages import STAGES

LOADED = ("gif_core.embedding.encoders.open_clip_encoder", "gif_core.training.worker", "faiss", "duckdb")
"""What stages import when they compute."""
Start = Callable[..., BaseProcess]
Gif = Callable[..., str]


@pytest.fixture
def run_gif(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gif:
    """Runs `gif …` in this process, and gives what it prints; a mistake must end with 2 and a sentence."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["gif", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert (end.value.code or 0) == code, printed.out + printed.err
        return printed.out + (printed.err if code else "")

    return run


@pytest.fixture
def start_gif(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the command with these arguments, on the real Prefect server."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["flows.cli", "flows.pipeline", *(f"tasks.{stage}" for stage in STAGES), *LOADED])

    def start(*arguments: str) -> BaseProcess:
        monkeypatch.setattr(sys, "argv", ["gif", *arguments])
        process = context.Process(target=main)
        process.start()
        return process

    return start
