"""Which evaluation sets a run would score, and which are not there."""

from collections.abc import Iterator

import fsspec

from schemas.evaluation import ADDRESSES, EvaluationSet, HeldOutSet
from schemas.run import RunConfig


def leave_out_missing_sets(config: RunConfig) -> RunConfig:
    """The configuration without optional sets whose files are not there; unchanged if none would remain."""
    sets = config.evaluation.sets
    kept = tuple(each for each in sets if not (is_optional(each) and missing_files(each)))
    if not kept or len(kept) == len(sets):
        return config
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"sets": kept})})


def sets_without_scores(config: RunConfig) -> Iterator[str]:
    """What is missing, set by set; and whether anything at all would be scored."""
    missing = {each.title: files for each in config.evaluation.sets if (files := missing_files(each))}
    if all(is_optional(each) for each in config.evaluation.sets) and len(missing) == len(config.evaluation.sets):
        places = ", ".join(f"{title} ({files[0][1]})" for title, files in missing.items())
        yield (
            f"evaluation would score nothing, none of its sets is there: {places}. Set data: (or $GIF_DATA) to the "
            "folder that holds them, or name other sets in evaluation.sets"
        )
        return
    for title, files in missing.items():
        for name, address in files:
            yield f"evaluation.sets: there is no file or folder {address}, the {name} of the set {title}"
    if config.ingestion.held_out == 0 and all(isinstance(each, HeldOutSet) for each in config.evaluation.sets):
        yield (
            "evaluation would score nothing: no identity is held out and evaluation.sets has no other set. Set "
            "ingestion.held_out, for instance to 0.05, or name sets, for instance "
            "evaluation.sets=[{kind: bin, path: lfw.bin}]"
        )


def is_optional(given: EvaluationSet) -> bool:
    """Whether a run may do without the set."""
    return bool(getattr(given, "optional", False))


def missing_files(given: EvaluationSet) -> list[tuple[str, str]]:
    """Settings of a set that name a file or folder which is not there, with the address."""
    named = ((name, getattr(given, name, None)) for name in ADDRESSES)
    return [(name, address) for name, address in named if isinstance(address, str) and not exists(address)]


def exists(address: str) -> bool:
    """Whether there is a file or folder at this address."""
    fs, path = fsspec.url_to_fs(address, use_listings_cache=False)
    return bool(fs.exists(path))
