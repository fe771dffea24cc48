import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from schemas.stages import STAGES

PROJECT = Path(__file__).parents[1]
LAYERS = ("flows", "tasks", "gif_core", "schemas")
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
CONTRACTS = {contract["name"]: contract for contract in SETTINGS["contracts"]}


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(project), "PATH": ""}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def copy_of_the_project(folder: Path) -> Path:
    for layer in LAYERS:
        shutil.copytree(PROJECT / layer, folder / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


BROKEN_BY = {
    "Layers: flows → tasks → gif_core → schemas": ("schemas.tokenization", "tasks.tokenization"),
    "Packages of the core import those below them": ("gif_core.tokenization.codes", "gif_core.training.step"),
    "The core does not know who runs it": ("gif_core.tokenization.kmeans", "prefect"),
    "Nothing on a cached path imports torch": ("gif_core.artifacts.store", "torch"),
}
"""For each contract an import, module and imported, that it forbids."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter prints for a copy of the project that breaks every contract once."""
    project = copy_of_the_project(tmp_path_factory.mktemp("project"))
    for module, imported in BROKEN_BY.values():
        path = (project / module.replace(".", "/")).with_suffix(".py")
        path.write_text(f"{path.read_text()}\nimport {imported}\n")
    done = lint_imports(project)
    assert done.returncode == 1
    return done.stdout


def test_the_contracts_hold() -> None:
    done = lint_imports(PROJECT)
    assert done.returncode == 0, done.stdout
    assert set(CONTRACTS) == set(BROKEN_BY)


@pytest.mark.parametrize("contract", BROKEN_BY)
def test_a_forbidden_import_breaks_its_contract(broken: str, contract: str) -> None:
    module, imported = BROKEN_BY[contract]
    assert f"{contract} BROKEN" in broken
    assert f"{module} -> {imported}" in broken


def test_every_stage_has_its_name_in_every_layer() -> None:
    files = [f"{layer}/{stage}.py" for layer in ("tasks", "schemas") for stage in STAGES]
    packages = [f"gif_core/{stage}/__init__.py" for stage in STAGES]
    assert [path for path in files + packages if not (PROJECT / path).is_file()] == []


def test_no_file_of_the_flows_hides_a_module_of_the_standard_library() -> None:
    names = {path.stem for path in (PROJECT / "flows").iterdir()}
    assert names & sys.stdlib_module_names <= {"__init__"}
