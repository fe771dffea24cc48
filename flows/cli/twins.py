"""`gif twins`: small evaluation sets of drawn people, to try files and protocols with."""

from pathlib import Path
from typing import Annotated

import typer

from gif_core.writers import new_folder


def twins(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; there must be nothing in it.")],
    people: Annotated[int, typer.Option(min=4, help="In each set.")] = 40,
    pairs: Annotated[int, typer.Option(min=10, help="In the .bin: pairs of one person, and as many of two.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Which people.")] = 0,
) -> None:
    """Write a verification file and an IJB-C tree of drawn people, in exactly the files of the real sets.

    Example:
      gif twins --out twins

      gif run --set "evaluation.sets=[{kind: bin, path: twins/pairs.bin}, {kind: ijb, path: twins/IJBC, name: IJB-C}]"
    """
    from gif_core.protocols.sets import write_bin_twin, write_ijb_twin

    with new_folder(out) as folder:
        write_bin_twin(folder, people=people, pairs=pairs, seed=seed)
        write_ijb_twin(folder / "IJBC", people=people, seed=seed)
    print(f"{out}: pairs.bin and IJBC of {people} people")
