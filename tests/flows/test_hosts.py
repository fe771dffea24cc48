"""Several hosts without a shared disk: each stage completes across them, also when one is cut off and comes back."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.conftest import CREDENTIALS, TINY, wait_until, weed_command
from tests.hosts import HOME, Host, hosts, missing_for_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
BINARIES = Path(sys.executable).parent
GIF, DASK = str(BINARIES / "gif"), str(BINARIES / "dask")
COUNTING = str(Path(__file__).parents[1] / "counting_parts.py")
API_PORT, S3_PORT, DASK_PORT, MEETING_PORT = 4200, 8333, 8786, 29500
SETTINGS = TINY | {
    "store": "s3://gif/artifacts",
    "ingestion": {
        "sources": [{"kind": "synthetic", "identities": 220, "smallest": 10, "largest": 14}],
        "held_out": 0.1,
    },
    "separation": {"epochs": 60, "target_gap": None},
    "training": {"epochs": 1, "batch_size": 16, "warmup_steps": 0},
}
EARLIER = {"separation": ["embedding"], "training": ["embedding", "separation", "tokenization"]}
"""Stages that a stage needs; they are reused when a test before it has made them."""
EXECUTION = {"device": "cpu", "workers": 1, "lost_after": 15, "retry_seconds": 5, "part_megabytes": 1}
"""A host is missed sooner than by default, so that the tests do not wait for long."""


@dataclass(frozen=True)
class Cluster:
    """A host with Prefect's server and S3, and two that work."""

    server: Host
    first: Host
    second: Host

    @property
    def reached(self) -> dict[str, str]:
        """The settings by which the hosts reach both servers."""
        storage = CREDENTIALS | {
            "AWS_ENDPOINT_URL": f"http://{self.server.address}:{S3_PORT}",
            "AWS_REGION": "us-east-1",
        }
        api = f"http://{self.server.address}:{API_PORT}/api"
        return storage | {"PREFECT_API_URL": api, "PREFECT_LOGGING_LEVEL": "INFO"}

    def said(self, title: str) -> str:
        """What both of them have said."""
        return self.first.said(title) + self.second.said(title)

    def gif(self, *arguments: str, **execution: object) -> list[str]:
        """A run of the pipeline; its configuration lies on both hosts."""
        for host in (self.first, self.second):
            settings = SETTINGS | {"execution": EXECUTION | execution}
            (host.home / "run.yaml").write_text(yaml.safe_dump(settings))
        return [GIF, "run", "--config", "run.yaml", "--verbose", *arguments]

    def prepare(self, stage: str) -> None:
        """Make what a stage reads, on one host."""
        for earlier in EARLIER[stage]:
            self.first.run(earlier, *self.gif("--only", earlier), **self.reached)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The hosts, with faces in the store."""
    if why_not := missing_for_hosts():
        pytest.skip(why_not)
    with ExitStack() as running:
        names = ("server", "first", "second")
        cluster = Cluster(*running.enter_context(hosts(tmp_path_factory.mktemp("hosts"), *names)))
        server, address = cluster.server, cluster.server.address
        from flows.cli.seaweed import PORTS

        ports = {name: 9300 + number for number, name in enumerate(PORTS)} | {"s3": S3_PORT}
        (server.home / "s3").mkdir()
        running.enter_context(server.running("s3", *weed_command(Path(HOME) / "s3", ports, address), **CREDENTIALS))
        command = (sys.executable, "-m", "prefect", "server", "start", "--host", address, "--port", str(API_PORT))
        running.enter_context(server.running("prefect", *command))
        ready = [sys.executable, "-c", READY, cluster.reached["PREFECT_API_URL"]]
        server.run("ready", *ready, **cluster.reached)
        cluster.first.run("ingestion", *cluster.gif("--only", "ingestion"), **cluster.reached)
        yield cluster


READY = """
import sys, time, httpx
from tests.conftest import answers, bucket_exists
import os
while not (answers(f"{sys.argv[1]}/health") and bucket_exists(os.environ["AWS_ENDPOINT_URL"])):
    time.sleep(0.5)
"""


def wait_for(host: Host, title: str, words: str, seconds: float, times: int = 1) -> None:
    """Wait until a command on a host has said something so many times, or has ended without."""
    log = host.log(title)
    wait_until(
        lambda: host.said(title).count(words) >= times or host.ended(title),
        seconds=seconds,
        what=f"{words!r} on {host.name}",
        log=log,
    )
    assert host.said(title).count(words) >= times, host.said(title)[-4000:]


SAVED = """
import sys, time
from gif_core.artifacts import ArtifactStore
storage, step, old = ArtifactStore("s3://gif/artifacts").storage, 0, None
while step < 10:
    time.sleep(0.1)
    found = {file.path for file in storage.find(f"checkpoints/{sys.argv[1]}") if file.path.endswith("state.json")}
    old = found if old is None else old
    step = max((int(path.split("/")[3].split("-")[0]) for path in found - old), default=0)
print(step)
"""


def resumed_after(host: Host, title: str, place: int) -> list[int]:
    """The epochs or steps after which a run went on, as it said from some place of its log on."""
    return [int(step) for step in re.findall(r"goes on after (?:epoch|step) (\d+)", host.said(title)[place:])]


def test_a_host_reads_nothing_that_another_one_writes(cluster: Cluster) -> None:
    cluster.first.run("write", "touch", "/tmp/written", "/dev/shm/written")
    cluster.first.run("refused", "sh", "-c", f"! touch {Path.cwd()}/written && ! touch /var/written")
    cluster.second.run("read", "sh", "-c", "! ls /tmp/written && ! ls /dev/shm/written")


def test_embedding_completes_on_dask_while_a_host_is_cut_off_and_computes_again_what_that_host_had_begun(
    cluster: Cluster,
) -> None:
    scheduler = f"tcp://{cluster.first.address}:{DASK_PORT}"
    given = {"runner": "dask", "runner_address": scheduler}
    with ExitStack() as running:
        place = ("--host", cluster.first.address, "--port", str(DASK_PORT), "--no-dashboard")
        running.enter_context(cluster.first.running("scheduler", DASK, "scheduler", *place))
        for host in (cluster.first, cluster.second):
            place = ("--host", host.address, "--nthreads", "1", "--no-dashboard", "--preload", COUNTING)
            running.enter_context(host.running("dask", DASK, "worker", scheduler, *place, **cluster.reached))
            wait_for(host, "dask", "Registered to", 90)
        command = cluster.gif("--only", "embedding", **given)
        run = running.enter_context(cluster.first.running("embedding", *command, **cluster.reached))
        wait_for(cluster.second, "dask", "stored part", 200)
        wait_for(cluster.second, "dask", "begun part", 60, times=1 + cluster.second.said("dask").count("stored part"))
        cluster.second.cut()
        try:
            wait_for(cluster.first, "scheduler", "Remove worker", 120)
        finally:
            cluster.second.mend()
        assert run.wait(400) == 0, cluster.first.said("embedding")[-4000:]
    begun, stored = (parts_of(cluster, word) for word in ("begun", "stored"))
    assert len(set(stored)) == len(set(begun)) > 4
    assert len(begun) <= len(set(begun)) + 1, "only what the lost host was computing was computed again"


def parts_of(cluster: Cluster, word: str) -> list[str]:
    """What the workers of both hosts have begun or stored, again if they did so again."""
    return re.findall(rf"{word} part (\S+)", cluster.said("dask"))


@pytest.mark.parametrize(
    ("stage", "changes"), [("separation", {"checkpoint_seconds": 0}), ("training", {"checkpoint_steps": 5})]
)
def test_a_stage_that_hosts_compute_together_goes_on_from_its_checkpoint_when_one_was_cut_off_and_is_back(
    cluster: Cluster, stage: str, changes: dict[str, object]
) -> None:
    cluster.prepare(stage)
    meeting = {"nodes": "2", "rendezvous": f"{cluster.first.address}:{MEETING_PORT}"}
    command = cluster.gif("--only", stage, **meeting, **changes)
    with ExitStack() as running:
        pair = (cluster.first, cluster.second)
        runs = [running.enter_context(host.running(stage, *command, **cluster.reached)) for host in pair]
        saved = int(cluster.server.run("saved", sys.executable, "-c", SAVED, stage, seconds=200, **cluster.reached))
        before = len(cluster.first.said(stage))
        cluster.second.cut()
        try:
            wait_for(cluster.first, stage, "Traceback", 120)
        finally:
            cluster.second.mend()
        assert [run.wait(400) for run in runs] == [0, 0], cluster.first.said(stage)[-4000:]
    assert min(resumed_after(cluster.first, stage, before)) >= saved, "what a checkpoint held was computed again"


def test_doctor_says_whether_a_host_reaches_both_servers_and_the_meeting(cluster: Cluster) -> None:
    meeting = {"nodes": "2", "rendezvous": f"{cluster.first.address}:{MEETING_PORT}"}
    cluster.gif(**meeting)
    said = cluster.second.run("doctor", GIF, "doctor", "run.yaml", COLUMNS="250", **cluster.reached)
    assert f"{cluster.first.address}:{MEETING_PORT} is reached" in said
    assert f"this machine is {cluster.second.address} on eth0" in said
    assert "create only once" in said
    assert f"at {cluster.reached['PREFECT_API_URL']}" in said


def test_a_host_that_is_left_alone_trains_to_the_end_and_the_one_that_comes_back_uses_its_model(
    cluster: Cluster,
) -> None:
    cluster.prepare("training")
    meeting = {"nodes": "1:2", "rendezvous": f"{cluster.first.address}:{MEETING_PORT}", "checkpoint_steps": 5}
    command = cluster.gif("--only", "training", "--set", "training.learning_rate=0.05", **meeting)
    with ExitStack() as running:
        first = running.enter_context(cluster.first.running("elastic", *command, **cluster.reached))
        second = running.enter_context(cluster.second.running("elastic", *command, **cluster.reached))
        saved = int(
            cluster.server.run("saved", sys.executable, "-c", SAVED, "training", seconds=200, **cluster.reached)
        )
        before = len(cluster.first.said("elastic"))
        cluster.second.cut()
        try:
            assert first.wait(400) == 0, cluster.first.said("elastic")[-4000:]
        finally:
            cluster.second.mend()
        assert second.wait(400) == 0, cluster.second.said("elastic")[-4000:]
    assert min(resumed_after(cluster.first, "elastic", before)) >= saved
