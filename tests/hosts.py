"""Hosts that share nothing but a network: each has its own name, address, processes and disk.

A host is a process in namespaces of its own (network, mounts, processes, host name). Its /tmp, where its home is, its
/run and its /dev/shm are empty disks in memory; all else of this machine, such as the project, it can only read. The
bridge between the hosts is in a namespace that has no other network. Everything ends with the process that made it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import PROJECT, QUIET, restore_signals, stop, wait_until

NEEDED = ("ip", "unshare", "nsenter", "setpriv", "mount")
ALONE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "-n",
    "-m",
    "-u",
    "-i",
    "-p",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
NETWORK = "10.77.0"
HOME = "/tmp/home"
BOOT = """
set -e
name=$1 disk=$2; shift 2
hostname "$name"
mount --make-rprivate /
mount -t tmpfs disk "$disk"
for kept in "$@"; do
    place=$disk${kept#/tmp}
    mkdir -p "$place"; mount --bind "$kept" "$place"; mount -o remount,bind,ro "$place"
done
mkdir "$disk/home"
printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' "$name" > "$disk/hosts"
: > "$disk/resolv.conf"
mount --bind "$disk/hosts" /etc/hosts
mount --bind "$disk/resolv.conf" "$(readlink -f /etc/resolv.conf)"
mount --rbind "$disk" /tmp
for folder in /run /var/tmp /dev/shm; do mount -t tmpfs disk "$folder"; done
mount -o remount,bind,ro /
ip link set lo up
: > /tmp/ready
while :; do sleep 1; done
"""
"""The disk of a host: of /tmp, only the folders of the project stay. Like many machines, it takes its own name for an
address that only itself can reach, and knows no other."""


def missing_for_hosts() -> str | None:
    """Why there can be no hosts here, if so."""
    if sys.platform != "linux" or os.geteuid():
        return "hosts in namespaces need Linux and root"
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"hosts in namespaces need the commands {', '.join(absent)}"
    tried = subprocess.run([*ALONE, "ip", "link", "add", "type", "bridge"], capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True)
class Host:
    """A running host; what is started on it ends with it at the latest."""

    name: str
    address: str
    process: int
    """The host's first process, as this machine numbers it."""
    bridge: int
    log_folder: Path
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The folder in which its commands run, as this machine sees it."""
        return Path(f"/proc/{self.process}/root{HOME}")

    @contextmanager
    def running(self, title: str, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command on the host, with a log; it is always stopped."""
        inside = [
            "nsenter",
            "--target",
            str(self.process),
            "--all",
            "sh",
            "-c",
            f'cd {HOME} && exec "$@"',
            "sh",
            *command,
        ]
        with self.log(title).open("wb") as output:
            process = subprocess.Popen(
                inside,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment() | environment,
                start_new_session=True,
                preexec_fn=restore_signals,
            )
        self.started[title] = process
        try:
            yield process
        finally:
            stop(process)

    def ended(self, title: str) -> bool:
        """Whether a command is over."""
        return self.started[title].poll() is not None

    def run(self, title: str, *command: str, seconds: float = 300, **environment: str) -> str:
        """What a command on the host prints; it must succeed."""
        with self.running(title, *command, **environment) as process:
            code = process.wait(seconds)
        assert code == 0, self.log(title).read_text()[-4000:]
        return self.log(title).read_text()

    def log(self, title: str) -> Path:
        """Where the output of a command is."""
        return self.log_folder / f"{self.name}-{title}.log"

    def said(self, title: str) -> str:
        """The output of a command so far."""
        return self.log(title).read_text(errors="replace")

    def cut(self) -> None:
        """Take the host off the network, as if its cable were pulled: nobody is told."""
        _run_in(self.bridge, "ip", "link", "set", self.name, "down")

    def mend(self) -> None:
        """Put the host back on the network."""
        _run_in(self.bridge, "ip", "link", "set", self.name, "up")


@contextmanager
def hosts(folder: Path, *names: str) -> Iterator[list[Host]]:
    """Hosts on one network, in order of their addresses; nothing of them stays."""
    with ExitStack() as running:
        bridge = running.enter_context(_namespaces("sleep", "infinity"))
        _run_in(bridge, "ip", "link", "add", "bridge", "type", "bridge")
        _run_in(bridge, "ip", "link", "set", "bridge", "up")
        yield [running.enter_context(_host(folder, bridge, name, number)) for number, name in enumerate(names, start=1)]


@contextmanager
def _host(folder: Path, bridge: int, name: str, number: int) -> Iterator[Host]:
    disk = folder / f"{name}-disk"
    disk.mkdir()
    kept = {str(place) for place in (PROJECT, Path(sys.prefix), Path(sys.base_prefix)) if place.is_relative_to("/tmp")}
    with _namespaces("sh", "-c", BOOT, "sh", name, str(disk), *sorted(kept)) as process:
        ready = Path(f"/proc/{process}/root/tmp/ready")
        wait_until(ready.exists, seconds=20, what=f"the start of {name}")
        _run_in(bridge, "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(process))
        _run_in(bridge, "ip", "link", "set", name, "master", "bridge", "up")
        address = f"{NETWORK}.{number}"
        _run_in(process, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        _run_in(process, "ip", "link", "set", "eth0", "up")
        yield Host(name, address, process, bridge, folder)


@contextmanager
def _namespaces(*command: str) -> Iterator[int]:
    """A command in namespaces of its own; the number of its first process. All in them ends with it."""
    process = subprocess.Popen([*ALONE, *command], stdin=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_until(lambda: bool(children.read_text().split()), seconds=20, what="the start of a namespace")
        yield int(children.read_text().split()[0])
    finally:
        process.kill()
        process.wait()


def _run_in(process: int, *command: str) -> None:
    """Run a command of this machine in the network of a process."""
    subprocess.run(["nsenter", "--target", str(process), "--net", *command], check=True)


def _environment() -> dict[str, str]:
    """This process's settings without those that name places or servers of this machine."""
    places = ("HOME", "TMPDIR", "XDG_", "GIF_", "AWS_", "PREFECT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(places)}
    return kept | QUIET | {"HOME": HOME, "NO_PROXY": "*", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
