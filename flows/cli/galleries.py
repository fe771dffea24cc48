"""`gif enroll` and `gif gallery`: people enrolled by their photographs, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.encoders import Device
from flows.cli.models import note_model
from flows.cli.options import Model, Store
from flows.cli.output import Console
from flows.cli.photographs import FaceModes, Faces
from gif_core.artifacts import ArtifactStore, latest_version, list_galleries, read_versions
from gif_core.runtime import counted

if TYPE_CHECKING:
    from gif_core.galleries import Enrolled

SHOWN = 10
"""Refused photographs that are listed."""
app = typer.Typer(help="List, show, export and clean galleries of enrolled people.", no_args_is_help=True)

GalleryOption = Annotated[str, typer.Option("--gallery", metavar="NAME", help="The gallery.")]
GalleryName = Annotated[str, typer.Argument(metavar="GALLERY", help="The gallery.")]


def enroll(
    store: Store,
    folder: Annotated[Path, typer.Argument(help="A sub-folder of photographs per person, or images of --labels.")],
    gallery: GalleryOption,
    labels: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A CSV file of image,label instead of sub-folders."),
    ] = None,
    unknown: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Sub-folders of photographs of other people, to calibrate the threshold on.",
            show_default="the model's held-out identities",
        ),
    ] = None,
    fpir: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unknown faces that may be taken for an enrolled person.")
    ] = 0.01,
    faces: Faces = FaceModes.auto,
    model: Model = None,
    device: Device = "auto",
) -> None:
    """Enrol people by their photographs, so that `gif identify --gallery` finds them; the model stays as it is.

    Examples:
      gif enroll photos --gallery staff

      gif enroll photos --gallery staff --unknown strangers --fpir 0.001
    """
    from gif_core.galleries import enroll as enroll_album
    from gif_core.galleries import read_album
    from gif_core.recognition import Recognizer

    opened = ArtifactStore(store)
    newest = latest_version(opened, gallery)
    recognizer = Recognizer.load(opened, model or (f"training/{newest.model}" if newest else None), device)
    of_gallery = newest is not None and model is None
    note_model(recognizer.model, f"of the gallery {gallery}" if of_gallery else recognizer.reason)
    strangers = read_album(unknown) if unknown else None
    album = read_album(folder, labels)
    done = enroll_album(recognizer, opened, gallery, album, unknown=strangers, faces=faces.value, fpir=fpir)
    _report(gallery, done)


def _report(gallery: str, done: Enrolled) -> None:
    for path, reason in done.refused[:SHOWN]:
        print(f"refused {path}: {reason}")
    if len(done.refused) > SHOWN:
        print(f"refused {len(done.refused) - SHOWN} more")
    version, again = done.version, f", {done.known} were enrolled before" if done.known else ""
    people = f"{counted(version.identities, 'person', 'people')}, {counted(version.images, 'image')}"
    print(f"{gallery}, version {version.number}: {people}; {done.added} new{again}")
    if version.threshold:
        print(
            f"threshold: cosine {version.threshold.cosine:.3f}, which at most {version.threshold.fpir:.1%} of "
            f"{version.threshold.unknown_images:,} images of {version.threshold.unknown_identities:,} unknown people "
            f"reach (FPIR; {version.threshold.origin})"
        )
    else:
        print(f"no threshold, so nobody is refused: {version.missing} with --unknown FOLDER")
    if done.tested:
        print(f"without themselves, {done.tested - done.missed} of {done.tested} new images are found")


@app.command("ls")
def ls(store: Store) -> None:
    """List all galleries.

    Example:
      gif gallery ls
    """
    opened = ArtifactStore(store)
    names = list_galleries(opened)
    if not names:
        print("there are no galleries yet: 'gif enroll FOLDER --gallery NAME' makes one")
        return
    table = Table("gallery", "version", "people", "images", "threshold", "model", "changed")
    for name in names:
        newest = read_versions(opened, name)[-1]
        threshold = f"{newest.threshold.cosine:.3f}" if newest.threshold else "none"
        numbers = (str(newest.number), str(newest.identities), str(newest.images), threshold)
        table.add_row(name, *numbers, newest.model[:12], f"{newest.made_at:%Y-%m-%d %H:%M}")
    Console().print(table)


@app.command("show")
def show(store: Store, gallery: GalleryName) -> None:
    """Show who is enrolled, with how many images, and the versions of a gallery.

    Example:
      gif gallery show staff
    """
    from gif_core.galleries import read_newest

    opened = ArtifactStore(store)
    _, templates = read_newest(opened, gallery)
    people = Table("person", "images")
    for label, digests in sorted(zip(templates.labels, templates.digests, strict=True)):
        people.add_row(escape(label), str(len(digests)))
    versions = Table("version", "when", "change", "people", "images", "threshold")
    for each in read_versions(opened, gallery):
        threshold = f"{each.threshold.cosine:.3f}" if each.threshold else "none"
        when = f"{each.made_at:%Y-%m-%d %H:%M}"
        versions.add_row(str(each.number), when, each.change, str(each.identities), str(each.images), threshold)
    Console().print(people)
    Console().print(versions)


@app.command("remove")
def remove(
    store: Store, gallery: GalleryName, person: Annotated[str, typer.Argument(help="The label of the person.")]
) -> None:
    """Remove a person: their vectors are deleted for good, and what else holds them is listed.

    Example:
      gif gallery remove staff ANNA
    """
    from gif_core.galleries import remove as remove_identity

    done = remove_identity(ArtifactStore(store), gallery, person)
    images = counted(done.images, "image")
    print(f"{gallery}, version {done.version.number}: {person} is removed, and the template of {images}")
    for each in done.held_by:
        print(f"still held by {each}")
    print("Not looked at: your photographs, exported galleries, back-ups, and versions of objects that S3 may keep.")


@app.command("export")
def export(
    store: Store,
    gallery: GalleryName,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .parquet or .npz.")],
) -> None:
    """Write labels and templates of unit length to a file: biometric data, to be kept like it.

    Example:
      gif gallery export staff --out staff.parquet
    """
    from gif_core.galleries import export_templates, read_newest

    version, templates = read_newest(ArtifactStore(store), gallery)
    export_templates(out, templates, version)
    of = json.dumps({"model": version.model, "version": version.number})
    print(f"{out}: {counted(len(templates), 'person', 'people')}, {of}")
