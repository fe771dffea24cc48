import subprocess
import sys

import pytest
import torch
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from gif_core.runtime import own_device
from schemas.execution import ExecutionConfig
from tasks.runners import open_runner, parts_at_once, runner_kind, threads_per_part

HOLD = "import sys; from gif_core.runtime.devices import claim_one; print(claim_one(sys.argv[1:]), flush=True); input()"


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("count", "given", "expected"),
    [
        (0, {}, ("threads", 1, 6)),
        (0, {"runner": "processes"}, ("processes", 6, 1)),
        (0, {"runner": "dask", "parts_at_once": 2}, ("dask", 2, 3)),
        (1, {}, ("threads", 1, 6)),
        (3, {}, ("processes", 3, 2)),
        (3, {"runner": "ray"}, ("ray", 3, 2)),
        (3, {"device": "cpu"}, ("threads", 1, 6)),
        (8, {}, ("processes", 8, 1)),
    ],
)
def test_there_is_one_process_for_each_gpu_and_the_workers_are_shared_out(
    monkeypatch: pytest.MonkeyPatch, count: int, given: dict[str, object], expected: tuple[str, int, int]
) -> None:
    gpus(monkeypatch, count)
    execution = ExecutionConfig.model_validate({"workers": 6, **given})
    assert (runner_kind(execution), parts_at_once(execution), threads_per_part(execution)) == expected


def test_threads_and_processes_are_prefects_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)
    assert isinstance(open_runner(ExecutionConfig()), ThreadPoolTaskRunner)
    assert isinstance(open_runner(ExecutionConfig(runner="processes")), ProcessPoolTaskRunner)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_a_missing_extra_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, f"prefect_{name}", None)
    with pytest.raises(ValueError, match=rf"execution\.runner = '{name}' needs .* -m pip install .* prefect-{name}$"):
        open_runner(ExecutionConfig.model_validate({"runner": name}))


def test_processes_claim_different_gpus_and_a_claim_ends_with_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("claims")))
    names = ["gpu-a", "gpu-b", "gpu-c"]

    def hold() -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    held = [hold() for _ in names]
    try:
        assert [number for _, number in held] == [0, 1, 2]
        held[1][0].kill()
        held[1][0].communicate()
        held.append(hold())
        assert held[-1][1] == 1
        held.append(hold())
        assert held[-1][1] in range(3), "all are taken: it shares one"
    finally:
        for process, _ in held:
            process.kill()
            process.communicate()


def test_without_several_gpus_nothing_is_claimed() -> None:
    assert own_device("cpu") == torch.device("cpu")
