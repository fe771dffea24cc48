"""`gif synthetic-sets`: small synthetic evaluation sets, to try file formats and protocols."""

from pathlib import Path
from typing import Annotated

import typer

from gif_core.writers import new_folder


def synthetic_sets(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must be empty or missing.")],
    identities: Annotated[int, typer.Option(min=4, help="Number of identities in each set.")] = 40,
    pairs: Annotated[
        int, typer.Option(min=10, help="Number of genuine pairs, and of impostor pairs, in the .bin.")
    ] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the identities.")] = 0,
) -> None:
    """Write a .bin verification file and an IJB-C tree of synthetic identities, in the formats of the real sets.

    Examples:
      gif synthetic-sets --out sets

      gif run --set "evaluation.sets=[{kind: bin, path: sets/pairs.bin}, {kind: ijb, path: sets/IJBC, name: IJB-C}]"
    """
    from gif_core.protocols.sets import write_synthetic_bin, write_synthetic_ijb

    with new_folder(out) as folder:
        write_synthetic_bin(folder, identities=identities, pairs=pairs, seed=seed)
        write_synthetic_ijb(folder / "IJBC", identities=identities, seed=seed)
    print(f"{out}: pairs.bin and IJBC of {identities} identities")
