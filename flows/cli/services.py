"""Processes that live exactly as long as one command: started in order, ended in the opposite order."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gif_core.runtime import MARK, PATIENCE, end_process_tree, handling_signals
from schemas.errors import GifError

TAIL = 2000
"""Characters of a log that a message shows."""
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Service:
    """A process with a log; it and its descendants carry the name `family` in their environment."""

    title: str
    family: str
    process: subprocess.Popen[bytes]
    log: Path
    leaves: Sequence[Path] = ()
    """Files that it does not remove at its end."""

    def check(self) -> None:
        """Raise an error with the end of its log if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise GifError(f"{self.title} ended with code {code}; the end of {self.log}:\n{read_tail(self.log)}")


class Services:
    """Starts processes and ends all of them, also if this process is killed: a guard process waits for that."""

    def __init__(self, logs: Path, lock: int) -> None:
        """Write logs to this folder, which must exist; the guard holds the lock too, until all have ended."""
        self.logs, self.lock, self.services = logs, lock, list[Service]()
        self.name = secrets.token_hex(8)

    def __enter__(self) -> "Services":
        """Start the guard before anything that it guards."""
        guard = [sys.executable, "-P", "-m", "gif_core.runtime.process_trees"]
        self.guard = subprocess.Popen(
            guard, stdin=subprocess.PIPE, text=True, pass_fds=[self.lock], start_new_session=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End all processes, last started first, and then the guard."""
        with handling_signals(lambda *_: None):
            for service in reversed(self.services):
                end_process_tree(service.family)
                _end_session(service.process)
                for path in service.leaves:
                    path.unlink(missing_ok=True)
            self.guard.kill()
            self.guard.communicate()

    def leave(self, path: Path) -> None:
        """Let the guard remove a file if this process is killed, after ending what was started since."""
        self._send_to_guard(str(path))

    def start(
        self,
        title: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        leaves: Sequence[Path] = (),
    ) -> Service:
        """Start a process in its own session, so that Ctrl-C reaches this process only."""
        name = title.replace(" ", "-").lower()
        family, log = f"{self.name}-{name}", self.logs / f"{name}.log"
        for path in leaves:
            self.leave(path)
        self._send_to_guard(family)
        with _open_log(log) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, MARK: family},
                cwd=cwd,
                start_new_session=True,
            )
        service = Service(title, family, process, log, leaves)
        self.services.append(service)
        return service

    def run(self, title: str, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        """Run a process to its end; a non-zero exit code is an error."""
        others = list(self.services)
        once = self.start(title, command, environment, cwd)
        while once.process.poll() is None:
            for service in others:
                service.check()
            time.sleep(LOOK_SECONDS)
        if once.process.returncode:
            once.check()
        self.services.remove(once)

    def wait(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until `ready()`; raise an error if a process ends meanwhile or after `seconds`."""
        end = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > end:
                last = self.services[-1]
                raise GifError(f"{what} took more than {seconds:.0f} s; the end of {last.log}:\n{read_tail(last.log)}")
            time.sleep(LOOK_SECONDS)

    def check(self) -> None:
        """Raise an error if one of them has ended."""
        for service in self.services:
            service.check()

    def _send_to_guard(self, line: str) -> None:
        if self.guard.stdin is None:
            raise RuntimeError("the guard has no standard input")
        self.guard.stdin.write(f"{line}\n")
        self.guard.stdin.flush()


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end; without /proc, where families cannot be found, terminate its session, then kill it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)


def read_tail(log: Path) -> str:
    """The end of a log."""
    return log.read_text(errors="replace")[-TAIL:].strip()


@contextmanager
def _open_log(log: Path) -> Iterator[int]:
    """Open a new log; the previous one is kept as `.old`."""
    if log.exists():
        log.replace(log.with_suffix(".old"))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
