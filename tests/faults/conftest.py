"""A store on the real S3 server, reached through a proxy that a test may let fail."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts import remote as remote_module
from tests.faults.proxy import FaultyProxy

SMALL_PART = 5 * 2**20
"""The smallest part of an upload that S3 takes."""


@pytest.fixture
def proxy(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Everything that opens a store after this goes through it."""
    with FaultyProxy(s3_server).running() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture
def remote(proxy: FaultyProxy, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """A store behind the proxy, whose files go in small parts."""
    monkeypatch.setattr(remote_module, "PART_BYTES", SMALL_PART)
    return ArtifactStore(s3_url)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """On a local disk, and behind the proxy."""
    return ArtifactStore(str(tmp_path / "store")) if request.param == "local" else request.getfixturevalue("remote")


Act = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def act() -> Iterator[Act]:
    """Does something to a store in a process of its own, which is always ended."""
    started: list[subprocess.Popen[str]] = []

    def start(what: str, store: ArtifactStore, *sizes: int) -> subprocess.Popen[str]:
        script, pipe = str(Path(__file__).with_name("acting.py")), subprocess.PIPE
        command = [sys.executable, script, what, store.storage.url, *map(str, sizes)]
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[2]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def large() -> bytes:
    """Enough for several parts."""
    return os.urandom(8 * SMALL_PART + 12345)
