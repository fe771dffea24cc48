"""The line that says which model a command uses."""

from flows.cli.output import Console
from schemas.artifacts import ArtifactRef


def note_model(ref: ArtifactRef, reason: str) -> None:
    """Name the model on stderr, and why it is this one."""
    Console(stderr=True).print(f"model: {ref}, {reason}", markup=False, highlight=False, soft_wrap=True)
