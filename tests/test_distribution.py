"""The wheel holds what the commands need, and runs in an environment of its own, from a folder that is not ours."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from flows.work_folder import PACKAGES, check_folder, choose
from gif_core.runtime import DISTRIBUTION
from schemas.errors import GifError
from tests.conftest import prefect_server_somewhere, running

PROJECT = Path(__file__).parents[1]
LAYERS = ("flows", "tasks", "gif_core", "schemas")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: the build writes beside its sources."""
    pytest.importorskip("setuptools", "77")
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for layer in LAYERS:
        shutil.copytree(PROJECT / layer, copy / layer, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(PROJECT / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = out.glob("*.whl")
    return built


def data_files() -> set[str]:
    """Files of the packages that are no code."""
    files = (path for layer in LAYERS for path in (PROJECT / layer).rglob("*") if path.is_file())
    return {str(path.relative_to(PROJECT)) for path in files if path.suffix not in (".py", ".pyc")}


def test_the_wheel_has_all_data_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.read("gif_core/runtime/constraints.txt") == (PROJECT / "constraints.txt").read_bytes()
    assert data_files() <= names
    assert {f"{layer}/py.typed" for layer in LAYERS} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(LAYERS)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_distribution_has_one_name_that_is_not_the_one_of_another_project() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION != "gif"
    assert project["scripts"] == {"gif": "flows.cli:main"}
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == project["version"]


def test_workflows_and_hooks_call_what_exists() -> None:
    workflow = yaml.safe_load((PROJECT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = [words[1] for words in map(str.split, steps) if words[0] == "make"]
    rules = (PROJECT / "Makefile").read_text()
    assert [target for target in targets if f"\n{target}:" not in rules] == []
    [local] = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local", "versions of a hub would differ from constraints.txt"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; the packages that it needs are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    # A plain path after the wheel's: an editable installation of the checkout there is not processed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a stranger, with packages of our names that must not be imported."""
    for layer in LAYERS:
        (tmp_path / layer).mkdir()
        (tmp_path / layer / "__init__.py").write_text("raise RuntimeError('a package of the current folder')\n")
    return tmp_path


def run(program: Path, *arguments: str, folder: Path, **environment: str) -> str:
    """What a program of the environment prints, in this folder, without the variables of the tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIF_", "PREFECT_"))}
    done = subprocess.run(
        [str(program), *arguments], cwd=folder, env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_deploying_from_a_folder_that_hides_our_packages_is_refused(folder: Path) -> None:
    assert PACKAGES == LAYERS
    with pytest.raises(GifError, match="flows, tasks, gif_core, schemas; use another working folder for runs"):
        check_folder(folder)
    check_folder(PROJECT)


@pytest.mark.slow
def test_the_installed_wheel_runs_the_pipeline_in_a_strange_folder(
    installed: Path, folder: Path, tiny_settings: dict[str, object]
) -> None:
    found = run(installed / "python", "-P", "-c", "import flows; print(flows.__file__)", folder=folder)
    assert Path(found.strip()).is_relative_to(installed.parent), "not the checkout"
    assert run(installed / "gif", "--version", folder=folder) == f"gif {version()}\n"
    assert "tiny-clip" in run(installed / "gif", "config", "show", "demo", folder=folder)
    execution = {"device": "cpu", "processes": 2, "workers": 1}
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**tiny_settings, "execution": execution}))
    run(installed / "gif", "run", "--config", "tiny.yaml", folder=folder)
    assert list((folder / "artifacts").rglob("report.html"))


@pytest.mark.slow
def test_a_worker_elsewhere_needs_neither_a_checkout_nor_the_folder_of_the_deployment(
    installed: Path, tmp_path: Path, tiny_settings: dict[str, object]
) -> None:
    ours, elsewhere = tmp_path / "ours", tmp_path / "elsewhere"
    ours.mkdir()
    elsewhere.mkdir()
    (tmp_path / "server").mkdir()
    with prefect_server_somewhere(tmp_path / "server") as api:
        run(installed / "gif", "deploy", folder=ours, PREFECT_API_URL=api)
        shutil.rmtree(ours)
        command = [str(installed / "python"), "-m", "prefect", "worker", "start", "--pool", "gif"]
        told = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1", "GIF_FOLDER": str(elsewhere / "work")}
        log = elsewhere / "worker.log"
        with running(command, log, folder=elsewhere, **told):
            asked = ("-p", f"config={json.dumps(tiny_settings)}", "-p", "only=ingestion", "--watch")
            started = run(
                installed / "python",
                *("-m", "prefect", "deployment", "run", "gif/full-pipeline", *asked),
                folder=elsewhere,
                PREFECT_API_URL=api,
            )
    assert "Completed" in started, log.read_text()
    assert list((elsewhere / "work" / "artifacts" / "ingestion").iterdir()), "the store of the settings, in GIF_FOLDER"


def test_runs_work_in_the_folder_of_the_worker_or_of_the_deployment_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GIF_FOLDER", raising=False)
    assert choose(str(tmp_path)) == tmp_path
    assert choose(str(tmp_path / "missing")) == tmp_path / "home" / "gif"
    monkeypatch.setenv("GIF_FOLDER", str(tmp_path / "given"))
    assert choose(str(tmp_path)) == tmp_path / "given"
    assert (tmp_path / "given").is_dir()
    monkeypatch.setenv("GIF_FOLDER", "/proc/none")
    with pytest.raises(GifError, match="set GIF_FOLDER in the environment of the worker"):
        choose(str(tmp_path))


def version() -> str:
    stated: str = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    return stated
