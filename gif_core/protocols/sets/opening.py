"""Opens the sets of a configuration, each with the reader of its format."""

from pathlib import Path

from gif_core.protocols.sets.bin import read_bin
from gif_core.protocols.sets.ijb import IjbName
from gif_core.protocols.sets.lfw import read_lfw
from gif_core.protocols.sets.pair_set import PairSet
from gif_core.protocols.sets.parquet import read_pair_table
from schemas.evaluation import IjbSet, LfwSet, PairFileSet, PairTableSet, SyntheticIjbSet, SyntheticPairsSet


def open_pairs(given: PairFileSet | LfwSet | PairTableSet) -> PairSet:
    """Read the pairs of a set, and its images if they are in the same file."""
    if isinstance(given, PairFileSet):
        return read_bin(given.path)
    return read_lfw(given) if isinstance(given, LfwSet) else read_pair_table(given)


def open_pair_set(given: PairFileSet | LfwSet | PairTableSet | SyntheticPairsSet, folder: Path) -> PairSet:
    """Open a set of pairs; a synthetic set is first written below `folder`."""
    if not isinstance(given, SyntheticPairsSet):
        return open_pairs(given)
    from gif_core.protocols.sets.synthetic import write_synthetic_bin

    path = write_synthetic_bin(folder / given.title, identities=given.identities, pairs=given.pairs, seed=given.seed)
    return read_bin(str(path))


def open_template_set(given: IjbSet | SyntheticIjbSet, folder: Path) -> tuple[str, IjbName]:
    """Return the address and name of an IJB tree; a synthetic set is first written below `folder`."""
    if isinstance(given, IjbSet):
        return given.path, given.name
    from gif_core.protocols.sets.synthetic import write_synthetic_ijb

    return str(write_synthetic_ijb(folder / given.title, identities=given.identities, seed=given.seed)), "IJB-C"
