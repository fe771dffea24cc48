"""Checks of GPUs for `gif doctor`: what torch and FAISS were built for, against what there is.

Torch is imported before FAISS: the CUDA libraries that are loaded first serve both.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Final

from flows.cli.checks import GB, Check

FAISS_FOR_GPUS: Final = ("faiss-gpu", "faiss-gpu-cuvs", "faiss-gpu-cu12", "faiss-gpu-cu13")
Capability = tuple[int, int]
"""Compute capability of a GPU, such as (8, 0)."""


def check_cuda(device: str) -> Iterator[Check]:
    """Check what torch and FAISS were built for; nothing where torch sees no GPU or none is wanted."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return
    gpus = range(torch.cuda.device_count())
    capabilities = [torch.cuda.get_device_capability(gpu) for gpu in gpus]
    yield judge_architectures(torch.__version__, torch.cuda.get_arch_list(), capabilities)
    yield judge_versions(torch.version.cuda or "none", find_faiss_major(FAISS_FOR_GPUS))
    free = min(torch.cuda.mem_get_info(gpu)[0] for gpu in gpus)
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if len(gpus) > 1 else "unused"  # type: ignore[no-untyped-call]
    few = "" if free > 4 * GB else "end other programs that use the GPU, or lower training.batch_size"
    yield Check("GPU memory", "warn" if few else "ok", f"{free / GB:.1f} GB free at least; NCCL {nccl}", few)


def judge_architectures(torch_version: str, built_for: Sequence[str], capabilities: Iterable[Capability]) -> Check:
    """Compare the GPUs' compute capabilities with the architectures in the wheel."""
    wanted = sorted({f"sm_{major}{minor}" for major, minor in capabilities})
    lacking = sorted({f"sm_{major}{minor}" for major, minor in capabilities if not _runs((major, minor), built_for)})
    found = f"{', '.join(wanted)}; torch {torch_version} is built for {', '.join(built_for)}"
    if lacking:
        advice = f"install a build of torch for {', '.join(lacking)}, or set execution.device=cpu"
        return Check("compute capability", "fail", found, advice)
    return Check("compute capability", "ok", found)


def _runs(capability: Capability, built_for: Iterable[str]) -> bool:
    """Machine code runs on later minor versions of its major; intermediate code is compiled for any later GPU."""
    for name in built_for:
        kind, _, digits = name.partition("_")
        architecture = divmod(int(re.sub(r"\D", "", digits)), 10)
        same = architecture[0] == capability[0] and architecture <= capability
        if same or (kind == "compute" and architecture <= capability):
            return True
    return False


def judge_versions(torch_cuda: str, faiss_major: int | None) -> Check:
    """Compare the major versions of CUDA that torch and FAISS were built for."""
    found = f"torch {torch_cuda}, FAISS {'unknown or none' if faiss_major is None else faiss_major}"
    if faiss_major is None or torch_cuda.partition(".")[0] == str(faiss_major):
        return Check("CUDA", "ok", found)
    advice = (
        "each brings its own CUDA libraries, which the driver has to serve both; if tokenization fails on the GPU, "
        f"install a build of FAISS for CUDA {torch_cuda.partition('.')[0]}, or faiss-cpu"
    )
    return Check("CUDA", "warn", found, advice)


def find_faiss_major(names: Iterable[str]) -> int | None:
    """The major version of CUDA whose libraries an installed FAISS requires; None if there is none, or it is unsaid."""
    for name in names:
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        majors = {int(found[1]) for line in required if (found := re.match(r"nvidia[a-z-]*-cu(\d+)", line))}
        if len(majors) == 1:
            return majors.pop()
    return None
