"""`gif faces`: contact sheets of faces, export to the formats of other programs, and the audit of labels."""

from collections.abc import Iterable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track

from flows.cli.audit import audit
from flows.cli.options import Run, Store
from flows.cli.output import Console
from flows.cli.selection import Selection, SelectionError, open_selection
from gif_core.artifacts import ArtifactStore
from gif_core.images import check_ending, draw_contact_sheet
from gif_core.protocols import draw_pairs, pair_rows
from gif_core.writers import FORMATS, export_faces, group_rows

FOLDS = 10
PAIRS = 3000

app = typer.Typer(help="Show faces on contact sheets, export them, and audit their labels.", no_args_is_help=True)
app.command("audit")(audit)

FacesKey = Annotated[
    str | None,
    typer.Option(
        "--faces", metavar="KEY", help="Use the faces of this artifact (first digits of its key) instead of a run's."
    ),
]


class Format(StrEnum):
    """Formats to export to."""

    recordio = "recordio"
    folder = "folder"
    webdataset = "webdataset"
    bin = "bin"


@app.command("show")
def show(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, .jpg or .png.")] = Path("faces.jpg"),
    identities: Annotated[str | None, typer.Option(metavar="ID,ID,…", help="Identities by identity id.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="LABEL,LABEL,…", help="Identities by label.")] = None,
    code: Annotated[
        str | None, typer.Option(metavar="TOKEN.TOKEN…", help="Identities whose code begins with these tokens.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, max=500, help="Maximum number of identities, unless they are named.")
    ] = 10,
    columns: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of faces per identity.")] = 12,
    held_out: Annotated[bool, typer.Option("--held-out", help="Show held-out identities instead.")] = False,
    faces: FacesKey = None,
    run: Run = None,
) -> None:
    """Write a contact sheet: one row for each identity, with label, identity id and code on the left.

    Examples:
      gif faces show --identities 3,14,15 --out sheet.jpg

      gif faces show --code 3.17 --rows 30             # do identities with similar codes look alike?

      gif faces show --held-out --columns 20 --out held_out.png

      gif faces show --faces 4f2a --labels person-000007
    """
    check_ending(out.suffix.lower())
    selection = open_selection(ArtifactStore(store), run, faces, held_out=held_out)
    chosen = _choose(selection, identities, labels, code)
    shown = chosen if identities or labels else chosen[:rows]
    captions = list(selection.captions(shown))
    out.write_bytes(draw_contact_sheet(selection.faces, shown, columns, captions, out.suffix.lower()))
    print(f"{out}: {len(shown)} of {len(chosen if code else selection.labels)} identities")


@app.command("export")
def export(
    store: Store,
    form: Annotated[Format, typer.Option("--format", "-f", help="The format to write.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must be empty or missing.")],
    held_out: Annotated[
        bool | None,
        typer.Option(
            "--held-out/--no-held-out",
            help="Held-out identities, or those for training.",
            show_default="held out for bin only",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(min=1, help="For bin: number of genuine pairs, and of impostor pairs.", show_default=str(PAIRS)),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For bin: seed of the pairs.", show_default="0")] = None,
    faces: FacesKey = None,
    run: Run = None,
) -> None:
    """Export the faces of a run or an artifact to other programs. Image files are copied byte by byte.

    recordio: train.rec, train.idx and property, the training format of insightface.

    folder: a sub-folder per identity; characters that file systems do not allow are percent-encoded.

    webdataset: tar files of up to 1 GB with an image, its class and its label as JSON per sample.

    bin: pairs.bin, the verification format of insightface.

    Examples:
      gif faces export --format recordio --out ms1mv2-rec

      gif faces export --format bin --pairs 3000 --out lfw-like

      gif faces export --format webdataset --faces 4f2a --out shards
    """
    if form is not Format.bin and (pairs is not None or seed is not None):
        raise SelectionError(f"--pairs and --seed are for --format bin only: {form} exports all faces")
    held_out = form is Format.bin if held_out is None else held_out
    selection = open_selection(ArtifactStore(store), run, faces, held_out=held_out)
    rows = (
        _draw_pairs(selection, pairs or PAIRS, seed or 0)
        if form is Format.bin
        else group_rows(selection.faces.labels_N)
    )
    with closing(export_faces(selection.faces, selection.labels, rows, FORMATS[form], out)) as steps:
        _show_progress(steps, str(form), len(rows))
    what = f"{len(rows) // 2:,} pairs" if form is Format.bin else f"{len(rows):,} faces"
    print(f"{out}: {what} of {len(selection.labels):,} identities")


def _show_progress(steps: Iterable[int], name: str, total: int) -> None:
    console = Console(stderr=True)
    for _ in track(steps, name, total=total, transient=True, console=console, disable=not console.is_terminal):
        pass


def _draw_pairs(selection: Selection, pairs: int, seed: int) -> NDArray[np.int64]:
    """Faces in the order of a verification file."""
    return pair_rows(draw_pairs(selection.faces.labels_N, pairs=pairs, seed=seed, folds=FOLDS))


def _choose(selection: Selection, identities: str | None, labels: str | None, code: str | None) -> list[int]:
    """Identity ids of the named identities in the order of the command, or of all identities."""
    if sum(option is not None for option in (identities, labels, code)) > 1:
        raise SelectionError("give one of --identities, --labels and --code")
    if identities is not None:
        return selection.numbered(_numbers("--identities", identities, ","))
    if labels is not None:
        return selection.named(labels.split(","))
    if code is not None:
        return selection.coded(_numbers("--code", code, "."))
    return list(range(len(selection.labels)))


def _numbers(option: str, text: str, separator: str) -> list[int]:
    try:
        return [int(part) for part in text.split(separator)]
    except ValueError:
        raise SelectionError(f"{option} {text}: give numbers, such as 3{separator}14") from None
