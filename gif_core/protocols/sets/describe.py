"""What evaluation sets hold, for keys, and where the synthetic sets among them are written."""

from pathlib import Path
from typing import Any, Final

from gif_core.protocols.sets.files import EvaluationFiles
from gif_core.protocols.sets.ijb import IjbName, describe_ijb
from gif_core.protocols.sets.pairs import PairSet, describe_pairs, open_pairs, read_bin
from schemas.evaluation import (
    EvaluationSet,
    HeldOutSet,
    IjbSet,
    LfwSet,
    PairFileSet,
    PairTableSet,
    SyntheticIjbSet,
    SyntheticPairsSet,
)

ADDRESSES: Final = ("path", "folder", "pairs", "images", "landmarks")


def describe_set(given: EvaluationSet) -> dict[str, Any]:
    """The part of a set in the key of its scores: what its files hold instead of where they are, and its settings."""
    settings = given.model_dump(mode="json")
    if isinstance(given, HeldOutSet | SyntheticPairsSet | SyntheticIjbSet):
        return settings
    holds = (
        describe_ijb(EvaluationFiles(given.path), given.name) if isinstance(given, IjbSet) else describe_pairs(given)
    )
    return {name: value for name, value in settings.items() if name not in ADDRESSES} | {"label": given.title} | holds


def open_pair_set(given: PairFileSet | LfwSet | PairTableSet | SyntheticPairsSet, folder: Path) -> PairSet:
    """Images and pairs; a synthetic set is first written below `folder`."""
    if not isinstance(given, SyntheticPairsSet):
        return open_pairs(given)
    from gif_core.protocols.sets.synthetic import write_synthetic_bin

    path = write_synthetic_bin(folder / given.title, identities=given.identities, pairs=given.pairs, seed=given.seed)
    return read_bin(str(path))


def open_template_set(given: IjbSet | SyntheticIjbSet, folder: Path) -> tuple[str, IjbName]:
    """Address and kind of an IJB tree; a synthetic set is first written below `folder`."""
    if isinstance(given, IjbSet):
        return given.path, given.name
    from gif_core.protocols.sets.synthetic import write_synthetic_ijb

    return str(write_synthetic_ijb(folder / given.title, identities=given.identities, seed=given.seed)), "IJB-C"
