"""`gif synthetic sets`: small evaluation sets of drawn identities, to try files and protocols with."""

from pathlib import Path
from typing import Annotated

import typer

from gif_core.writers import new_folder


def synthetic_sets(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; there must be nothing in it.")],
    identities: Annotated[int, typer.Option(min=4, help="In each set.")] = 40,
    pairs: Annotated[int, typer.Option(min=10, help="In the .bin: pairs of one person, and as many of two.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Which identities.")] = 0,
) -> None:
    """Write a verification file and an IJB-C tree of drawn identities, in exactly the files of the real sets.

    Example:
      gif synthetic sets --out synthetic sets

      gif run --set "evaluation.sets=[{kind: bin, path: sets/pairs.bin}, {kind: ijb, path: sets/IJBC, name: IJB-C}]"
    """
    from gif_core.protocols.sets import write_synthetic_bin, write_synthetic_ijb

    with new_folder(out) as folder:
        write_synthetic_bin(folder, identities=identities, pairs=pairs, seed=seed)
        write_synthetic_ijb(folder / "IJBC", identities=identities, seed=seed)
    print(f"{out}: pairs.bin and IJBC of {identities} identities")
