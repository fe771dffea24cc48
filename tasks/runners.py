"""The engine that runs the parts of a stage: threads, processes, Ray or Dask, all through Prefect."""

import multiprocessing
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Thread
from typing import Any, Literal, cast

import torch
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from gif_core.runtime import install_extra_command
from schemas.execution import ExecutionConfig

Runner = TaskRunner[Any]


def open_runner(execution: ExecutionConfig) -> Runner:
    """The configured task runner; a context manager that starts and stops it."""
    kind, at_once = runner_kind(execution), parts_at_once(execution)
    if kind == "ray":
        return _ray_runner(execution, at_once)
    if kind == "dask":
        return _dask_runner(execution, at_once)
    return ProcessPoolTaskRunner(at_once) if kind == "processes" else ThreadPoolTaskRunner(at_once)


def runner_kind(execution: ExecutionConfig) -> Literal["threads", "processes", "ray", "dask"]:
    """One process for each GPU when there are several; threads otherwise."""
    if execution.runner != "auto":
        return execution.runner
    return "processes" if _gpus(execution) > 1 else "threads"


def parts_at_once(execution: ExecutionConfig) -> int:
    """The configured number, else one per GPU, else one with threads or one per worker with processes."""
    if execution.parts_at_once or _gpus(execution):
        return execution.parts_at_once or _gpus(execution)
    return 1 if runner_kind(execution) == "threads" else execution.workers


def threads_per_part(execution: ExecutionConfig) -> int:
    """The workers divided among concurrent parts; on an existing cluster every part gets all of them."""
    return execution.workers if execution.runner_address else max(1, execution.workers // parts_at_once(execution))


@cache
def end_with_parent() -> None:
    """End this pool process when its parent is killed; otherwise it would wait for ever and keep its GPU."""
    if multiprocessing.parent_process() is not None:
        Thread(target=_wait_for_parent, daemon=True, name="gif-parent").start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def resources(execution: ExecutionConfig) -> AbstractContextManager[Any]:
    """The resources that Ray reserves for one part; other engines only count parts."""
    if runner_kind(execution) != "ray":
        return nullcontext()
    from prefect_ray.context import remote_options

    gpus = execution.device == "cuda" if execution.runner_address else _gpus(execution) > 0
    share: AbstractContextManager[Any] = remote_options(num_cpus=threads_per_part(execution), num_gpus=int(gpus))
    return share


def _ray_runner(execution: ExecutionConfig, at_once: int) -> Runner:
    try:
        from prefect_ray import RayTaskRunner
    except ImportError as error:
        raise _missing("ray") from error
    if execution.runner_address:
        return cast(Runner, RayTaskRunner(execution.runner_address))
    local = {
        "num_cpus": at_once * threads_per_part(execution),
        "include_dashboard": False,
        "log_to_driver": False,
        "_system_config": {"worker_niceness": 0},  # the cluster belongs to this run, so low priority helps no one
    }
    return cast(Runner, RayTaskRunner(init_kwargs=local))


def _dask_runner(execution: ExecutionConfig, at_once: int) -> Runner:
    try:
        from prefect_dask import DaskTaskRunner
    except ImportError as error:
        raise _missing("dask") from error
    if execution.runner_address:
        return cast(Runner, DaskTaskRunner(address=execution.runner_address))
    local = {"n_workers": at_once, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    return cast(Runner, DaskTaskRunner(cluster_kwargs=local))


def _missing(name: str) -> ValueError:
    return ValueError(
        f"execution.runner = {name!r} needs a package that is not installed: {install_extra_command(name)}"
    )


def _gpus(execution: ExecutionConfig) -> int:
    return torch.cuda.device_count() if execution.device in ("auto", "cuda") else 0
