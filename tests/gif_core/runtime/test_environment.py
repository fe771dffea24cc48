import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gif_core.reporting.sections.lineage import group_environments
from gif_core.runtime import describe_environment, environment


def test_an_environment_names_python_system_processor_and_packages() -> None:
    found = describe_environment()
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.system
    assert found.cpu
    assert found.cores >= 1
    assert found.packages["numpy"] == np.__version__
    assert found.python in str(found)
    assert found.cpu in str(found)


def test_gpus_are_those_that_torch_sees_once_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a process that has published a stage without it before."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert describe_environment().gpus == ()
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda number: f"G{number}"
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0")))
    monkeypatch.setattr(environment, "_driver", lambda: "580.1")
    found = describe_environment()
    assert (found.gpus, found.cuda, found.driver) == (("G0", "G1"), "13.0", "580.1")
    assert str(found).endswith("G0; G1; driver 580.1; CUDA 13.0")


def test_a_report_names_each_environment_once_with_its_stages() -> None:
    here = describe_environment()
    there = here.model_copy(update={"cpu": "another"})
    made = [("ingestion", here), ("embedding", there), ("separation", here), ("tokenization", None)]
    manifests = [SimpleNamespace(stage=stage, environment=where) for stage, where in made]
    assert group_environments(manifests) == [(["ingestion", "separation"], here), (["embedding"], there)]  # type: ignore[arg-type]
