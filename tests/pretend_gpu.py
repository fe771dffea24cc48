"""A pretended GPU: tensors on a device of their own that compute on the CPU, and a count of what its host waits for.

PyTorch treats the device like any other that is not the CPU: copies are explicit, and mixing devices is an error. The
host of a GPU waits for a number that it reads, for a result whose size depends on values, and for a copy to its own
memory or from memory that is not pinned, unless the copy is asked not to block.

Import it in a process of its own: PyTorch starts its threads for the backward pass by the devices that it knows.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
CPU: Final = torch.device("cpu")
SIZES_OF_VALUES: Final = {aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim, aten.unique_consecutive}
INDEXING: Final = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
PACKAGE: Final = "/gif_core/"


_setup_privateuseone_for_python_backend("pretend")
GPU: Final = torch.device("pretend", 0)


class PretendTensor(Tensor):
    """A tensor on the pretended GPU; `inner` holds its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        """On the device, with the numbers of a CPU tensor."""
        made: Self = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=GPU
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Nothing is computed uncounted."""
        raise RuntimeError(f"{func} without the pretended GPU")

    def tolist(self) -> Any:
        """Numbers, for which the host waits."""
        return self.cpu().tolist()

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        """The tensor without its history."""
        return self.detach()

    @data.setter
    def data(self, given: "PretendTensor") -> None:
        Tensor.data.__set__(self, given)  # type: ignore[attr-defined]
        self.inner = given.inner


class PretendGpu(TorchDispatchMode):
    """Computes for the device, and counts waits by kind and by the function of the project that caused them."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.pinned: dict[int, Tensor] = {}
        self.sent: dict[int, Tensor] = {}

    def pin(self, tensor: Tensor) -> Tensor:
        """Take the memory of a host tensor for pinned; it is kept, so that no other tensor gets the same place."""
        self.pinned[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation."""
        kwargs = dict(kwargs or {})
        ours = any(isinstance(leaf, PretendTensor) for leaf in _leaves((args, kwargs)))
        target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        is_pinned = kwargs.pop("pin_memory", False)
        if not ours and target != GPU:
            result = func(*args, **kwargs)
            return self.pin(result) if is_pinned else result
        self._count(func, args, kwargs, target)
        if target is not None:
            kwargs["device"] = CPU
        given = _map(lambda leaf: leaf.inner if isinstance(leaf, PretendTensor) else leaf, (args, kwargs))
        result = func(*given[0], **given[1])
        if func.namespace == "c10d":  # PyTorch hands the tensors of a message on as they are, unwrapped
            self.sent |= {leaf.data_ptr(): leaf for leaf in _leaves(given) if isinstance(leaf, Tensor)}
            return result
        if target is not None and target != GPU:
            return result
        wrapped = _map(lambda leaf: PretendTensor(leaf) if isinstance(leaf, Tensor) else leaf, result)
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if ours else wrapped

    def _count(self, func: Any, args: Any, kwargs: dict[str, Any], target: torch.device | None) -> None:
        packet = func.overloadpacket
        if packet is aten._local_scalar_dense:
            self._add("number read")
        elif packet in SIZES_OF_VALUES or (packet in INDEXING and _has_mask(args[1])):
            self._add("size of values")
        elif packet in (aten._to_copy, aten.copy_):
            to, source = (target, args[0]) if packet is aten._to_copy else (args[0].device, args[1])
            blocking = not (kwargs.get("non_blocking") or (packet is aten.copy_ and len(args) > 2 and args[2]))
            self._count_copy(to or source.device, source, blocking)

    def _count_copy(self, to: torch.device, source: Tensor, blocking: bool) -> None:
        if to != GPU and source.device == GPU and blocking:
            self._add("copy to the host")
        if to == GPU and source.device != GPU and source.untyped_storage().data_ptr() not in self.sent:
            if blocking:
                self._add("blocking copy from the host")
            elif source.untyped_storage().data_ptr() not in self.pinned:
                self._add("copy from memory that is not pinned")

    def _add(self, what: str) -> None:
        frames = [frame for frame in traceback.extract_stack() if PACKAGE in frame.filename]
        place = f"{frames[-1].filename.rpartition(PACKAGE)[2]} {frames[-1].name}" if frames else "elsewhere "
        self.waits[f"{what} ({place})"] += 1


def _has_mask(indices: Any) -> bool:
    return any(isinstance(each, Tensor) and each.dtype == torch.bool for each in indices)


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, tuple | list):
        for each in given:
            yield from _leaves(each)
    elif isinstance(given, dict):
        yield from _leaves(list(given.values()))
    else:
        yield given


def _map(work: Callable[[Any], Any], given: Any) -> Any:
    if isinstance(given, tuple | list):
        return type(given)([_map(work, each) for each in given])
    return {key: _map(work, each) for key, each in given.items()} if isinstance(given, dict) else work(given)


@contextmanager
def pretended_gpu() -> Iterator[PretendGpu]:
    """A pretended GPU for the block; it computes in fp32 even where autocast asks for less."""
    gpu = PretendGpu()
    with (
        patch.object(Tensor, "pin_memory", lambda tensor: gpu.pin(tensor.clone())),
        patch.object(torch, "autocast", lambda *_, **__: nullcontext()),
        gpu,
    ):
        yield gpu
