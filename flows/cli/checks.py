"""Checks of this machine for `gif doctor`; a failed check is a line of its table, not an exception."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gif_core.artifacts import AccessStep, cache_folder, try_store
from gif_core.planning import available_memory, existing_folder
from schemas.addresses import hide_credentials
from schemas.embedding import EmbeddingConfig

GB = 1e9
LEAST_DISK, GOOD_DISK = 1 * GB, 20 * GB
LEAST_MEMORY, GOOD_MEMORY = 1 * GB, 4 * GB


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def check_gpu(device: str) -> Check:
    """Check that the configured GPU exists and computes."""
    import torch

    if not torch.cuda.is_available():
        if device == "cuda":
            advice = "install a driver and a CUDA build of torch, or set execution.device=cpu"
            return Check("GPU", "fail", f"none, and torch {torch.__version__} cannot use one", advice)
        return Check("GPU", "ok" if device != "auto" else "warn", "none", "training on the CPU is for small datasets")
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    try:
        for number in range(len(found)):
            torch.ones(64, 64, device=f"cuda:{number}").square().sum().item()
    except RuntimeError as error:
        return Check("GPU", "fail", str(error).splitlines()[0], "look at nvidia-smi: driver, memory, other processes")
    return Check("GPU", "ok", ", ".join(f"{gpu.name} {gpu.total_memory / GB:.0f} GB" for gpu in found))


def check_faiss(device: str) -> Check:
    """Check that FAISS finds nearest neighbours, and whether it can use the GPUs."""
    import torch  # isort: skip - the CUDA libraries that are loaded first serve both
    import faiss

    points = np.eye(8, dtype=np.float32)
    index = faiss.IndexFlatIP(8)
    index.add(points)
    if index.search(points, 1)[1].ravel().tolist() != list(range(8)):
        return Check(
            "FAISS", "fail", f"{faiss.__version__} finds wrong neighbours", "install it again: make clean demo"
        )
    gpus = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    found = f"{faiss.__version__}, {faiss.get_compile_options().strip()}, {gpus} GPUs"
    if torch.cuda.is_available() and device != "cpu" and not gpus:
        return Check(
            "FAISS", "warn", found, "tokenization runs on the CPU: make demo FAISS=gpu installs FAISS for GPUs"
        )
    return Check("FAISS", "ok", found)


def check_store(address: str) -> Iterator[Check]:
    """Check access to the store: write, create only once, read, replace, list, delete."""
    steps: list[AccessStep] = []
    try:
        steps.extend(try_store(address))
    except Exception as error:
        done = ", ".join(step.name for step in steps) or "nothing"
        found = hide_credentials(f"worked: {done}; then {type(error).__name__}: {error}")
        yield Check("store", "fail", found, _advice_for_store(address, error))
        return
    yield Check("store", "ok", ", ".join(f"{step.name} {1000 * step.seconds:.0f} ms" for step in steps))


def _advice_for_store(address: str, error: Exception) -> str:
    if "://" not in address or address.startswith("file://"):
        return "choose another folder: store in the configuration, or GIF_STORE"
    if type(error).__name__ == "CarelessStoreError":
        return "use a server that honours conditional writes"
    if isinstance(error, FileNotFoundError):
        return "make the bucket, or correct its name in the configuration's store"
    return "look at AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and whether the server runs"


def check_weights(config: EmbeddingConfig) -> Check:
    """Check that the encoder can be built with its weights, as a run does."""
    import torch

    from gif_core.embedding.encoders import build_encoder

    name = f"{config.encoder} {config.model} {config.pretrained}"
    try:
        build_encoder(config, torch.device("cpu"))
    except Exception as error:
        advice = "give embedding.pretrained a file of weights, or a tag that this machine can download"
        return Check("weights", "fail", str(error).splitlines()[0], advice)
    return Check("weights", "ok", name)


def check_detector() -> Check:
    """Check that the face detector is installed and works; without it images must be aligned faces."""
    from gif_core.detection import DetectorMissingError, open_detector

    try:
        open_detector().find(np.zeros((64, 64, 3), np.uint8))
    except DetectorMissingError:
        return Check("detector", "warn", "none: photographs must be aligned", "gif detector install")
    except Exception as error:
        return Check("detector", "fail", str(error).splitlines()[0], "gif detector install")
    return Check("detector", "ok", "YuNet 2023mar")


def check_disks(store: str) -> Iterator[Check]:
    """Check the free space for artifacts, copies of remote files and temporary files."""
    local = "://" not in store or store.startswith("file://")
    places = {"cache": cache_folder(), "temporary files": Path(tempfile.gettempdir())}
    places |= {"store": Path(store.removeprefix("file://"))} if local else {}
    for name, folder in places.items():
        yield check_room(name, folder)


def check_room(name: str, folder: Path, least: float = LEAST_DISK, good: float = GOOD_DISK) -> Check:
    """Check the free space, in bytes, of the disk that holds a folder or would hold it."""
    there = existing_folder(folder.absolute())
    free = shutil.disk_usage(there).free
    found = f"{free / GB:.1f} GB free in {there}"
    if not os.access(there, os.W_OK):
        return Check(
            f"disk: {name}", "fail", f"{there} cannot be written to", "choose another folder, or change its owner"
        )
    if free < good:
        state: Literal["warn", "fail"] = "fail" if free < least else "warn"
        return Check(f"disk: {name}", state, found, "free some: 'gif artifacts gc --yes' removes leftovers")
    return Check(f"disk: {name}", "ok", found)


def check_memory(least: float = LEAST_MEMORY, good: float = GOOD_MEMORY) -> Check:
    """Check the available memory, in bytes."""
    free = available_memory()
    if free is None:
        return Check("memory", "warn", "this system does not report it", "keep some GB free")
    found = f"{free / GB:.1f} GB free"
    if free < good:
        advice = "end other programs, or lower execution.encode_batch and training.batch_size"
        return Check("memory", "fail" if free < least else "warn", found, advice)
    return Check("memory", "ok", found)
