"""`gif` in processes that have everything imported already: seconds less for each."""

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest

from flows.cli import main

Start = Callable[..., BaseProcess]


@pytest.fixture
def start_gif(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the command with these arguments, on the real Prefect server."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["flows.cli", "flows.pipeline"])

    def start(*arguments: str) -> BaseProcess:
        monkeypatch.setattr(sys, "argv", ["gif", *arguments])
        process = context.Process(target=main)
        process.start()
        return process

    return start
