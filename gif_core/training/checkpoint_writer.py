"""Writes checkpoints while the training goes on.

The state is copied to host memory, which a GPU does on the side; a thread then writes, hashes and uploads the copies.
The checkpoint counts when every process has written its files and the first one has written the state that names them;
until then the one before it counts. All messages between processes are sent by the main thread.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from gif_core.artifacts import Checkpoints
from gif_core.runtime import ProcessGroup, copies_made, runs_behind, with_log_fields
from gif_core.training.checkpoints import StateFile, files_of
from schemas.artifacts import StoredFile

if TYPE_CHECKING:
    from gif_core.training.step import TrainingState
    from gif_core.training.trainer import TrainingReport

LARGEST_COPY: Final = 2**31
"""Bytes of a file's tensors in host memory above which they are written in the step: a copy may not fit."""


@dataclass(slots=True)
class _Pending:
    """A checkpoint that does not count yet."""

    folder: str
    step: int
    values: dict[str, Any]
    files: Future[list[StoredFile]]
    commit: Future[None] | None = None


class CheckpointWriter:
    """Writes one checkpoint at a time; all processes call its methods after the same steps."""

    def __init__(self, checkpoints: Checkpoints, group: ProcessGroup) -> None:
        """The thread starts with the first checkpoint."""
        self.checkpoints, self.group = checkpoints, group
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="gif-checkpoints")
        self.pending: _Pending | None = None
        self.copies: dict[tuple[str, str], Tensor] = {}

    def start(self, state: "TrainingState", reports: Sequence["TrainingReport"], *, steps: int) -> None:
        """Copy the state of a training of so many steps, and write it while the caller goes on.

        The checkpoint before it is finished first.
        """
        self.finish()
        (folder, *_) = self.group.gather(self.checkpoints.new_folder(state.step) if self.group.leads else None)
        values = {
            "steps": steps,
            "reports": [asdict(report) for report in reports],
            "scaler": state.scaler.state_dict(),
        }
        files = files_of(state, self.group)
        written = [self._write(folder, file) for file in files if _is_large(file)]
        copies = [self._copy(file) for file in files if not _is_large(file)]
        wait = copies_made(self.group.device)
        future = self.thread.submit(with_log_fields(self._write_copies), folder, copies, wait, written)
        self.pending = _Pending(folder, state.step, values, future)

    @property
    def is_writing(self) -> bool:
        """Whether files of this process are still being written."""
        return self.pending is not None and not self.pending.files.done()

    def advance(self) -> None:
        """Complete the checkpoint, whose files all processes have written, also on the side."""
        pending = self.pending
        if pending is None or pending.commit is not None:
            return
        shares = self.group.gather([file.model_dump() for file in pending.files.result()])
        files = [StoredFile.model_validate(file) for share in shares for file in share]
        work: Callable[..., None] = self.checkpoints.commit if self.group.leads else _nothing
        pending.commit = self.thread.submit(with_log_fields(work), pending.folder, pending.step, files, pending.values)

    def finish(self) -> None:
        """Wait until the last checkpoint counts."""
        if self.pending is not None:
            self.advance()
            assert self.pending.commit is not None
            self.pending.commit.result()
            self.pending = None

    def close(self) -> None:
        """End the thread after what it is writing; a checkpoint that lacks its state does not count."""
        self.thread.shutdown()

    def _copy(self, file: StateFile) -> StateFile:
        """The file with copies of its tensors in host memory, which is used again for the next checkpoint."""
        pin, copies = runs_behind(self.group.device), {}
        for name, tensor in file.tensors.items():
            copy = self.copies.get((file.name, name))
            if copy is None or copy.shape != tensor.shape:
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin)
            copies[name] = self.copies[file.name, name] = copy.copy_(tensor.detach(), non_blocking=True)
        return file._replace(tensors=copies)

    def _write_copies(
        self, folder: str, files: list[StateFile], wait: Callable[[], None], written: list[StoredFile]
    ) -> list[StoredFile]:
        wait()
        return written + [self._write(folder, file) for file in files]

    def _write(self, folder: str, file: StateFile) -> StoredFile:
        return self.checkpoints.write(folder, file.name, file.tensors, file.about)


def _is_large(file: StateFile) -> bool:
    on_host = [tensor for tensor in file.tensors.values() if tensor.device.type == "cpu"]
    return sum(tensor.nbytes for tensor in on_host) > LARGEST_COPY


def _nothing(*_: object) -> None:
    """What other processes than the first do to complete a checkpoint."""
