"""Install hints name exact requirements and files, so that they work from any folder and from any installation."""

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gif_core.runtime import CONSTRAINTS, DISTRIBUTION, install_command, install_extra_command
from gif_core.runtime.distribution import extra_requirements

PROJECT = Path(__file__).parents[3]
METADATA = """Metadata-Version: 2.4
Name: gif-face-recognition
Version: 9
Provides-Extra: onnx
Provides-Extra: ray
Requires-Dist: numpy
Requires-Dist: onnx>=1.2; extra == "onnx"
Requires-Dist: onnxruntime; (sys_platform == "nowhere") and extra == "onnx"
Requires-Dist: prefect-ray; extra == "ray"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution as installed with the metadata above."""
    folder = tmp_path / "gif_face_recognition-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_an_extra_is_what_the_installed_metadata_says_for_this_machine() -> None:
    assert metadata.version(DISTRIBUTION) == "9"
    assert extra_requirements("onnx") == ["onnx>=1.2"]
    assert extra_requirements("ray") == ["prefect-ray"]


def test_code_that_is_not_installed_reads_the_extras_of_its_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", _not_found)
    assert extra_requirements("onnx") == ["onnx", "onnxruntime", "onnxscript"]


def _not_found(name: str) -> list[str]:
    raise metadata.PackageNotFoundError(name)


def test_a_hint_names_this_interpreter_and_an_absolute_path() -> None:
    python, *pip, constraint, path, package = shlex.split(install_command("prefect-ray>=0.1"))
    assert (python, pip, constraint, package) == (
        sys.executable,
        ["-m", "pip", "install"],
        "--constraint",
        "prefect-ray>=0.1",
    )
    assert Path(path).is_absolute()
    assert Path(path).read_text() == CONSTRAINTS.read_text()


def test_a_hint_is_a_command_that_pip_accepts_in_an_empty_folder(tmp_path: Path) -> None:
    offline = ["--dry-run", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [*shlex.split(install_extra_command("onnx")), *offline]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_hint_names_the_distribution_of_another_project() -> None:
    code = [path for layer in ("flows", "tasks", "gif_core", "schemas") for path in (PROJECT / layer).rglob("*.py")]
    assert len(code) > 100
    assert [path for path in code if "gif[" in path.read_text("utf-8")] == []
