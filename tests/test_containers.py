"""Containers: what can be checked of them without a Docker engine or a cluster."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.utilities.templating import apply_values

from flows.cli.environment import SERVER
from schemas.loading import load_config

DOCKER = Path(__file__).parents[1] / "docker"
EXACT = re.compile(r"^[a-z0-9./-]+:(?!latest)[0-9]+\.[0-9]+[\w.-]*$")
"""An image with a tag that begins with two numbers."""
SECRET = re.compile(r"PASSWORD|SECRET|ACCESS_KEY")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """What multi-node.yaml describes, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DOCKER / "kubernetes" / "multi-node.yaml").read_text())}


def stages() -> dict[str, list[str]]:
    """Lines of the Dockerfile by stage."""
    found: dict[str, list[str]] = {}
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("FROM"):
            found[line.split()[-1]] = []
        if found and line:
            list(found.values())[-1].append(line)
    return found


def test_every_base_image_has_an_exact_tag() -> None:
    built = stages()
    bases = [lines[0].split()[1] for lines in built.values()]
    assert {"cpu", "cuda"} <= built.keys()
    assert [base for base in bases if base not in built and not EXACT.match(base)] == []


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_code_comes_after_the_packages_and_runs_as_nobody_special(target: str) -> None:
    built = stages()
    base = built[target][0].split()[1]
    assert any("pip install" in line and "constraints.txt" in line for line in built[base])
    assert not any("COPY . ." in line for line in built[base])
    assert [line for line in built[target] if line.startswith("USER")] == ["USER 1000:1000"]


def test_only_what_runs_is_copied() -> None:
    lines = (DOCKER.parent / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *("flows", "tasks", "gif_core", "schemas"),
        *("pyproject.toml", "constraints.txt", "README.md", "LICENSE"),
    }


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.is_file() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_services_have_exact_images_health_checks_and_no_new_privileges(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert EXACT.match(service["image"]), name
        assert service["healthcheck"].get("disable") or service["healthcheck"]["test"][0] == "CMD", name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_secrets_come_from_the_environment_and_must_be_given(compose: dict[str, Any]) -> None:
    environments = [service.get("environment", {}) for service in compose["services"].values()]
    secrets = {name: value for settings in environments for name, value in settings.items() if SECRET.search(name)}
    assert len(secrets) >= 4
    assert [name for name, value in secrets.items() if not re.fullmatch(r"\$\{\w+:\?[^}]+\}", value)] == []


def test_only_the_ui_can_be_reached_and_only_from_this_machine(compose: dict[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert list(ports) == ["server"]
    assert all(port.startswith("127.0.0.1:") for port in ports["server"])


def test_the_server_has_the_settings_that_gif_up_gives_its_own(compose: dict[str, Any]) -> None:
    assert SERVER.items() <= compose["services"]["server"]["environment"].items()


def test_volumes_and_services_that_are_named_exist(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert {mount.split(":")[0] for mount in service.get("volumes", [])} <= compose["volumes"].keys(), name
        assert set(service.get("depends_on", {})) <= compose["services"].keys(), name


def test_the_s3_server_knows_every_option_that_it_is_given(compose: dict[str, Any]) -> None:
    weed, mini, *options = compose["services"]["s3"]["command"]
    program = Path(sys.executable).with_name(weed)
    told = subprocess.run([str(program), mini, "-h"], capture_output=True, text=True, check=False)
    known = set(re.findall(r"^  -([\w.]+)", told.stdout + told.stderr, re.MULTILINE))
    assert {option[1:].split("=")[0] for option in options} <= known


def assert_careful(pod: dict[str, Any]) -> None:
    """Not root, no privileges, GPUs, and shared memory that counts as memory."""
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert EXACT.match(container["image"])
    assert int(container["resources"]["limits"]["nvidia.com/gpu"]) >= 1
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert container["envFrom"][0]["secretRef"]["name"] == "gif-store", "credentials are nowhere in the file"


def test_the_work_pools_template_makes_a_careful_job_with_its_defaults() -> None:
    template = json.loads((DOCKER / "kubernetes" / "base-job-template.json").read_text())
    variables = template["variables"]["properties"]
    values = {name: field["default"] for name, field in variables.items() if "default" in field}
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == set(variables), "every variable is used, and none is unknown"
    job = apply_values(template["job_configuration"], values, remove_notset=False)["job_manifest"]
    assert job["spec"]["backoffLimit"] == 0, "Prefect starts a run again, not Kubernetes"
    assert_careful(job["spec"]["template"]["spec"])


def test_machines_that_train_together_meet_where_their_configuration_says(manifests: dict[str, Any]) -> None:
    job, service = manifests["Job"]["spec"], manifests["Service"]
    assert_careful(job["template"]["spec"])
    config = load_config(yaml.safe_load(manifests["ConfigMap"]["data"]["run.yaml"]))
    assert int(config.execution.nodes) == job["completions"] == job["parallelism"]
    host, port = str(config.execution.rendezvous).split(":")
    assert host == f"{manifests['Job']['metadata']['name']}-0.{service['metadata']['name']}"
    assert int(port) == service["spec"]["ports"][0]["port"]
    assert job["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert job["completionMode"] == "Indexed", "which gives each machine a name of its own"
