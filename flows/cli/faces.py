"""`gif faces`: look at the faces of a run."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Run, Store
from gif_core.artifacts import ArtifactMissingError, ArtifactStore
from gif_core.contact_sheet import contact_sheet
from gif_core.faces import Faces
from gif_core.queries import run_artifacts

app = typer.Typer(help="Look at the faces of a run.", no_args_is_help=True)


@app.callback()
def callback() -> None:
    """Look at the faces of a run."""


@app.command("show")
def show(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The JPEG file to write.")] = Path("faces.jpg"),
    identities: Annotated[
        str | None, typer.Option(metavar="ID,ID,…", help="Identity ids; the first ten if not given.")
    ] = None,
    columns: Annotated[int, typer.Option(min=1, max=100, help="Faces of each person, at the most.")] = 12,
    held_out: Annotated[bool, typer.Option("--held-out", help="People kept aside instead.")] = False,
    run: Run = None,
) -> None:
    """Write a contact sheet: one row for each person.

    Example: gif faces show --identities 3,14,15 --out sheet.jpg
    """
    artifact = run_artifacts(ArtifactStore(store), run).get("ingestion")
    if artifact is None:
        raise ArtifactMissingError("this run has no faces")
    split = "held_out" if held_out else "identities"
    faces = Faces([artifact.path(name) for name in artifact.names(f"{split}-")])
    people = sorted(set(faces.labels_N.tolist()))
    rows = [int(part) for part in identities.split(",")] if identities else people[:10]
    out.write_bytes(contact_sheet(faces, rows, columns))
    print(f"{out}: {len(rows)} of {len(people)} people")
