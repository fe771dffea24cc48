"""Labels of synthetic identities: their number in the source, and back."""

from typing import Final

PREFIX: Final = "person-"


def label_of(number: int) -> str:
    """The label of the identity with this number."""
    return f"{PREFIX}{number:06d}"


def number_of(label: str) -> int:
    """The number of the identity with this label."""
    return int(label.removeprefix(PREFIX))
