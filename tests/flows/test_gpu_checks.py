"""What `gif doctor` says about GPUs, from what torch and FAISS report of themselves."""

from importlib import metadata

import pytest

from flows.cli.gpu_checks import check_cuda, find_faiss_major, judge_architectures, judge_versions


@pytest.mark.parametrize(
    ("capability", "state"), [((8, 0), "ok"), ((8, 6), "ok"), ((9, 0), "ok"), ((12, 1), "ok"), ((6, 1), "fail")]
)
def test_a_gpu_needs_machine_code_of_its_major_version_or_earlier_intermediate_code(
    capability: tuple[int, int], state: str
) -> None:
    check = judge_architectures("2.13.0", ["sm_80", "sm_90a", "compute_120"], [capability])
    assert check.state == state
    assert (f"sm_{capability[0]}{capability[1]}" in check.advice) == (state == "fail")


@pytest.mark.parametrize(
    ("torch_cuda", "faiss", "state"), [("13.0", 13, "ok"), ("13.0", None, "ok"), ("13.0", 12, "warn")]
)
def test_faiss_of_another_major_version_of_cuda_is_a_warning(torch_cuda: str, faiss: int | None, state: str) -> None:
    check = judge_versions(torch_cuda, faiss)
    assert check.state == state
    assert ("faiss-cpu" in check.advice) == (state == "warn")


def test_the_version_that_faiss_requires_is_read_from_its_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = {"faiss-gpu": ["numpy", "nvidia-cublas-cu12>=12.1", "nvidia-cuda-runtime-cu12>=12.1"]}

    def requires(name: str) -> list[str]:
        if name not in requirements:
            raise metadata.PackageNotFoundError(name)
        return requirements[name]

    monkeypatch.setattr(metadata, "requires", requires)
    assert find_faiss_major(["faiss-gpu-cuvs", "faiss-gpu"]) == 12
    assert find_faiss_major(["faiss-gpu-cuvs"]) is None


def test_nothing_is_said_where_no_gpu_is_wanted() -> None:
    assert list(check_cuda("cpu")) == []
