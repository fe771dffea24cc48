"""Runs in processes of their own on this machine, which end with the process that began them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from gif_core.runtime import ending_by_signal, milestones
from schemas.errors import GifError
from schemas.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

IMPORTED: Final = (
    "flows.cli.run",
    "flows.pipeline",
    *(f"tasks.{stage}" for stage in STAGES),
    "gif_core.embedding.encoders.open_clip_encoder",
    "gif_core.training.worker",
)
"""What runs need: imported once, by the process from which those of the runs are forked."""
PATIENCE: Final = 30.0
"""Seconds between SIGINT, SIGTERM and SIGKILL to a run whose parent has ended: enough for a checkpoint."""

_exit_codes = Lock()
"""Each exit code can be read once, and starting a process reads those of all that have ended."""


@contextmanager
def watched_pipe() -> Iterator[Connection]:
    """A pipe that only this process holds open: runs that watch it end with the block or with this process."""
    watched, held = multiprocessing.Pipe(duplex=False)
    with held, watched:
        yield watched


def run_forked(
    work: Callable[..., object],
    *given: object,
    server: str,
    watched: Connection,
    tell: Callable[[str], None] = lambda milestone: None,
) -> str | None:
    """Do `work` in a forked process that reports to this Prefect server; its error if it fails.

    Its milestones are told as they are reached; all else that it prints is kept to find the error.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    reached, theirs = multiprocessing.Pipe(duplex=False)
    with NamedTemporaryFile("r", errors="replace", delete=False) as said, reached:
        path = Path(said.name)
        try:
            process = context.Process(target=_begin, args=(work, given, server, path, watched, theirs))
            start(process)
            theirs.close()
            with suppress(EOFError):
                while True:
                    tell(reached.recv())
            code = finish(process)
        finally:
            path.unlink(missing_ok=True)
        return _find_error(said.read()) if code else None


def start(process: BaseProcess) -> None:
    """Start a process, while no exit code is being read."""
    with _exit_codes:
        process.start()


def finish(process: BaseProcess) -> int | None:
    """Wait for a process; its exit code."""
    wait([process.sentinel])
    with _exit_codes:
        process.join()
    return process.exitcode


def _begin(
    work: Callable[..., object],
    given: tuple[object, ...],
    server: str,
    said: Path,
    watched: Connection,
    reached: Connection,
) -> None:
    """Do the work in this process; all that it says goes into a file, whose name is gone when it is open.

    It is in a session of its own, so that Ctrl-C reaches the parent alone, which then ends its runs.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    os.setsid()
    Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    with said.open("w") as file:
        said.unlink()
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    milestones.addHandler(_Sender(reached))
    os.environ["PREFECT_API_URL"] = server
    try:
        with ending_by_signal(), temporary_settings({PREFECT_API_URL: server}):
            work(*given)
    except GifError as error:
        sys.exit(f"error: {error}")


class _Sender(logging.Handler):
    """Sends the text of each milestone to the parent, which may be gone."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self.connection.send(record.getMessage())


def _end_with_parent(watched: Connection) -> None:
    """End this process as Ctrl-C does when its parent has closed the pipe, also if that was killed."""
    watched.poll(None)
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getpid(), sign)
        time.sleep(PATIENCE)


def _find_error(said: str) -> str:
    """The error among what a run has said, else its last line."""
    lines = said.strip().splitlines() or ["without a word"]
    return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1])
