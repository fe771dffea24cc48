"""What an evaluation set holds, as it enters the key of its scores: digests of files instead of their addresses."""

from typing import Any

from gif_core.protocols.sets.bin import LARGEST_FILE
from gif_core.protocols.sets.files import EvaluationFiles
from gif_core.protocols.sets.ijb import describe_ijb
from gif_core.protocols.sets.tinyface import describe_tinyface, tinyface_files
from schemas.evaluation import (
    ADDRESSES,
    EvaluationSet,
    HeldOutSet,
    IjbSet,
    LfwSet,
    PairFileSet,
    PairTableSet,
    SyntheticIjbSet,
    SyntheticPairsSet,
    TinyFaceSet,
)


def describe_set(given: EvaluationSet) -> dict[str, Any]:
    """Return a set's part of the key of its scores: its settings, with digests of its files instead of addresses."""
    settings = given.model_dump(mode="json")
    if settings.get("group") is None:
        settings.pop("group", None)  # so that it is in no key unless it is used
    if isinstance(given, HeldOutSet | SyntheticPairsSet | SyntheticIjbSet):
        return settings
    return (
        {name: value for name, value in settings.items() if name not in (*ADDRESSES, "optional")}
        | {"label": given.title}
        | _describe_files(given)
    )


def _describe_files(given: PairFileSet | LfwSet | PairTableSet | IjbSet | TinyFaceSet) -> dict[str, Any]:
    if isinstance(given, IjbSet):
        return describe_ijb(EvaluationFiles(given.path), given.name)
    return describe_tinyface(tinyface_files(given.path)) if isinstance(given, TinyFaceSet) else describe_pairs(given)


def describe_pairs(given: PairFileSet | LfwSet | PairTableSet) -> dict[str, Any]:
    """Digest the files of a set of pairs by content, and a folder of images by names and sizes."""
    names = ("path", "pairs", "images", "landmarks")
    addresses = {name: value for name in names if (value := getattr(given, name, None))}
    most = LARGEST_FILE if isinstance(given, PairFileSet) else None
    holds = {name: EvaluationFiles(address).digest([""], most) for name, address in addresses.items()}
    if isinstance(given, LfwSet):
        holds["folder"] = EvaluationFiles(given.folder).digest_sizes()
    return holds
