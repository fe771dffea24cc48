"""The state of a training as files, and back: on as many processes as before, or on another number.

What every process has alike is written by the first one. A head that is shared out has rows of its own in each process;
each writes its rows with the number of the first, and whoever resumes reads those that are now its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from gif_core.artifacts import Checkpoint
from gif_core.backbones import read_backbone
from gif_core.runtime import ProcessGroup, own_range
from schemas.errors import GifError
from schemas.files import BACKBONE_FILE, HEAD_FILE

if TYPE_CHECKING:
    from gif_core.heads import Head
    from gif_core.training.step import TrainingState
    from schemas.training import TrainingStart

OPTIMIZER: Final = "optimizer.safetensors"
AVERAGE: Final = "average.safetensors"
"""The moving average of the network."""
ROWS: Final = "rows-"
FIRST_ROW: Final = "first_row"
WEIGHT: Final = "weight_MD"
"""Last part of the name of rows that a head learns; whatever else has a row per identity is for the optimizer."""
VECTORS: Final = "code_vectors"
"""Name of the matrix of code vectors in its file."""
LENT: Final = "sampled_SD"
"""Last part of the name of the rows of a step, of which there are none between steps."""
QUEUES: Final = ("sample_negatives.", "queue.", "pool.")
"""First parts of the names of the features that a head remembers while it is trained."""


class StateFile(NamedTuple):
    """What a process writes to one file of a checkpoint."""

    name: str
    tensors: Mapping[str, Tensor]
    about: Mapping[str, str]


def load_state(state: "TrainingState", checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """Bring the training to where it was, and give the reports of its steps."""
    state.model.load_state_dict(load_tensors(checkpoint, BACKBONE_FILE))
    if state.average is not None:
        state.average.load_state_dict(load_tensors(checkpoint, AVERAGE))
    head, optimizer = load_tensors(checkpoint, HEAD_FILE), load_tensors(checkpoint, OPTIMIZER)
    if state.head.row_tensors():
        rows = read_rows([checkpoint.path(name) for name in checkpoint.names(ROWS)], *state.head.row_range)
        head |= {name.removeprefix(HEAD_FILE): rows[name] for name in rows if name.startswith(HEAD_FILE)}
        optimizer |= {name.removeprefix(OPTIMIZER): rows[name] for name in rows if name.startswith(OPTIMIZER)}
    state.head.load_state_dict(head)
    _load_optimizer(state, optimizer)
    state.scaler.load_state_dict(checkpoint.state.values["scaler"])
    state.step = checkpoint.state.step
    reports: list[dict[str, Any]] = checkpoint.state.values["reports"]
    return reports


def load_weights(state: "TrainingState", start: "TrainingStart") -> None:
    """Begin with the weights of another training, and with a fresh optimizer.

    A head with a row for each identity takes the rows of the identities it knows; those of new identities stay as
    drawn, or at their code vectors.
    """
    _fill(state.model, read_backbone(Path(start.backbone)), "the backbone")
    if state.average is not None:
        state.average.load_state_dict(state.model.state_dict())
    rows = [name for name in state.head.row_tensors() if name.endswith(WEIGHT)]
    if start.head is not None:
        _fill(state.head, _read_shared(start.head, state.head), "the head", apart=state.head.row_tensors())
    for name in rows:
        if start.code_vectors is not None:
            _fill_rows(state.head, name, start.code_vectors, VECTORS)
        elif start.head is not None and state.head.sharded:
            _fill_rows(state.head, name, start.head, name)


def _read_shared(path: str, head: "Head") -> dict[str, Tensor]:
    """The tensors of a head that are not about single identities."""
    with safe_open(path, framework="pt") as file:
        names = filter(is_kept, file.keys())
        return {name: file.get_tensor(name) for name in names if name not in head.row_tensors()}


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], what: str, apart: Sequence[str] = ()) -> None:
    """Load all tensors but those `apart`, and those that pass with a training."""
    own = {name: value for name, value in module.state_dict().items() if name not in apart and is_kept(name)}
    unlike = sorted(name for name in own.keys() | tensors.keys() if _shape(own.get(name)) != _shape(tensors.get(name)))
    if unlike:
        raise GifError(
            f"{what} of the model to start from is another: {', '.join(unlike[:3])} do not fit; train from scratch, "
            "without training.start_from, or with the settings of that model"
        )
    module.load_state_dict(tensors, strict=False)


def _fill_rows(head: "Head", name: str, path: str, stored_name: str) -> None:
    first, end = head.row_range
    with safe_open(path, framework="pt") as file:
        stored = file.get_slice(stored_name)
        known = min(end, stored.get_shape()[0]) - first
        if known > 0:
            with torch.no_grad():
                head.state_dict()[name][:known] = stored[first : first + known]


def _shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)


def is_kept(name: str) -> bool:
    """Whether a tensor of a head is of use after its training."""
    return not name.endswith(LENT) and not name.startswith(QUEUES)


def load_tensors(checkpoint: Checkpoint, name: str) -> dict[str, Tensor]:
    """The tensors of a file; there is no file when there are none."""
    return load_file(checkpoint.path(name)) if checkpoint.names(name) else {}


def read_rows(paths: Iterable[Path], first: int, end: int, suffix: str = "") -> dict[str, Tensor]:
    """The rows from `first` to `end` of every tensor in these files, each of which holds a range of them.

    Tensors whose names do not end with `suffix` are not read.
    """
    parts: dict[str, list[tuple[int, Tensor]]] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            start = int(file.metadata()[FIRST_ROW])
            for name in (name for name in file.keys() if name.endswith(suffix)):  # noqa: SIM118 - not a dict
                stored = file.get_slice(name)
                begin, stop = max(first - start, 0), min(end - start, stored.get_shape()[0])
                if begin < stop:
                    parts.setdefault(name, []).append((start, stored[begin:stop]))
    return {name: _join([rows for _, rows in sorted(found, key=itemgetter(0))]) for name, found in parts.items()}


def _join(parts: list[Tensor]) -> Tensor:
    """The parts as one tensor, without a copy of one that is whole already."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def files_of(state: "TrainingState", group: ProcessGroup) -> list[StateFile]:
    """The files of a checkpoint that this process writes; their tensors are those of the training, not copies."""
    head, optimizer, files = dict(state.head.state_dict()), _optimizer_tensors(state), []
    if mine := state.head.row_tensors():
        rows = {f"{HEAD_FILE}{name}": head.pop(name) for name in mine if name in head}
        learned = [name for name in optimizer if name.partition("/")[0] in mine and optimizer[name].ndim]
        rows |= {f"{OPTIMIZER}{name}": optimizer.pop(name) for name in learned}
        first, share = _share_of_rows(state.head, group)
        rows = {name: tensor[share] for name, tensor in rows.items()}
        files.append(StateFile(f"{ROWS}{group.rank:05d}.safetensors", rows, {FIRST_ROW: str(first)}))
    average = {} if state.average is None else state.average.state_dict()
    shared = {BACKBONE_FILE: state.model.state_dict(), AVERAGE: average, HEAD_FILE: head, OPTIMIZER: optimizer}
    return files + [StateFile(name, tensors, {}) for name, tensors in shared.items() if tensors and group.leads]


def _share_of_rows(head: "Head", group: ProcessGroup) -> tuple[int, slice]:
    """The first identity of the rows that this process writes, and which of its rows they are.

    All of them if each process holds its own; a part if every process holds all.
    """
    first, end = head.row_range
    if head.sharded:
        return first, slice(None)
    begin, stop = own_range(end, group.rank, group.size)
    return begin, slice(begin, stop)


def _optimizer_tensors(state: "TrainingState") -> dict[str, Tensor]:
    """What the optimizer remembers of every parameter, `parameter/what`."""
    return {
        f"{name}/{what}": tensor
        for name, parameter in _saved_parameters(state).items()
        for what, tensor in state.optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def _load_optimizer(state: "TrainingState", tensors: Mapping[str, Tensor]) -> None:
    parameters = _saved_parameters(state)
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("/")
        parameter = parameters[name]
        if tensor.shape == parameter.shape:
            tensor = torch.empty_like(parameter).copy_(tensor)
        elif state.optimizer.defaults["fused"]:  # counts its steps on the device
            tensor = tensor.to(parameter.device)
        state.optimizer.state[parameter][what] = tensor


def _saved_parameters(state: "TrainingState") -> dict[str, Tensor]:
    """Parameters that are part of the state, by the names they have in it."""
    known = {id(parameter) for group in state.optimizer.param_groups for parameter in group["params"]}
    named = dict(state.model.named_parameters(prefix="backbone"))
    saved = state.head.state_dict().keys()
    named |= {name: parameter for name, parameter in state.head.named_parameters() if name in saved}
    return {name: parameter for name, parameter in named.items() if id(parameter) in known}
