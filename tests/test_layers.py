import shutil
import subprocess
import sys
from pathlib import Path

from schemas.stages import STAGES

PROJECT = Path(__file__).parents[1]
LAYERS = ("flows", "tasks", "gif_core", "schemas")


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(project), "PATH": ""}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def copy_of_the_project(folder: Path) -> Path:
    for layer in LAYERS:
        shutil.copytree(PROJECT / layer, folder / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


def test_the_contract_holds_and_is_broken_by_prefect_in_the_core(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    assert lint_imports(project).returncode == 0
    core = project / "gif_core" / "tokenization" / "codes.py"
    core.write_text(core.read_text() + "\nimport prefect\n")
    broken = lint_imports(project)
    assert broken.returncode == 1
    assert "gif_core.tokenization.codes -> prefect" in broken.stdout


def test_the_contract_is_broken_by_an_import_of_a_higher_layer(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    schema = project / "schemas" / "tokenization.py"
    schema.write_text(schema.read_text() + "\nimport tasks.tokenization\n")
    broken = lint_imports(project)
    assert broken.returncode == 1
    assert "schemas.tokenization -> tasks.tokenization" in broken.stdout


def test_every_stage_has_its_name_in_every_layer() -> None:
    files = [f"{layer}/{stage}.py" for layer in ("flows", "tasks", "schemas") for stage in STAGES]
    packages = [f"gif_core/{stage}/__init__.py" for stage in STAGES]
    assert [path for path in files + packages if not (PROJECT / path).is_file()] == []


def test_no_file_of_the_flows_hides_a_module_of_the_standard_library() -> None:
    names = {path.stem for path in (PROJECT / "flows").iterdir()}
    assert names & sys.stdlib_module_names <= {"__init__"}
