"""`gif embed`, `gif verify` and `gif identify`: a trained model in use."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.cli.encoders import Device, check_format, print_vectors, save_vectors
from flows.cli.models import note_model
from flows.cli.options import Model, Store
from flows.cli.output import Console
from flows.cli.photographs import (
    All,
    Draw,
    FaceModes,
    Faces,
    GivenFace,
    Landmarks,
    PhotographError,
    check_drawing,
    fail_if_skipped,
    read_given,
    save_drawing,
)

if TYPE_CHECKING:
    from gif_core.recognition import Identified, Recognizer

Images = Annotated[
    list[Path],
    typer.Argument(exists=True, dir_okay=False, help="Photographs or aligned faces: JPEG, PNG, WebP or BMP."),
]
Image = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A photograph or an aligned face: JPEG, PNG, WebP or BMP.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each answer.")]


class By(StrEnum):
    """How enrolled identities are found; the same as `gif_core.recognition.METHODS`."""

    reranked = "reranked"
    codes = "codes"
    exhaustive = "exhaustive"


def embed(
    store: Store,
    images: Images,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the features, as .npy or .parquet.")] = None,
    faces: Faces = FaceModes.auto,
    every: All = False,
    draw: Draw = None,
    landmarks: Landmarks = None,
    model: Model = None,
    device: Device = "auto",
) -> None:
    """Compute features of faces with a trained model: the sum over image and mirror image, of unit length.

    Examples:
      gif embed a.jpg b.jpg

      gif embed group.jpg --all --draw boxes.jpg

      gif embed photos/*.jpg --landmarks points.txt --out features.parquet
    """
    check_format(out)
    check_drawing(draw, images)
    is_named = out is None or out.suffix != ".npy"  # its rows are known by their order alone
    given = read_given(images, faces, landmarks, every=every, skip=is_named)
    features_BD = _load(store, model, device).embed([each.face for each in given])
    names = [each.name for each in given]
    if out is None:
        print_vectors(names, features_BD)
    else:
        save_vectors(out, names, features_BD)
    save_drawing(draw, given, [str(each.number or 1) for each in given])
    fail_if_skipped(images, given)


def verify(
    store: Store,
    left: Image,
    right: Image,
    pairs: Annotated[
        str | None,
        typer.Option("--set", metavar="SET", help="Use the threshold of this evaluated set.", show_default="held_out"),
    ] = None,
    faces: Faces = FaceModes.auto,
    landmarks: Landmarks = None,
    model: Model = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Decide whether two faces show one identity, by the threshold found in evaluation.

    Examples:
      gif verify a.jpg b.jpg

      gif verify a.jpg b.jpg --set LFW --model 20260102
    """
    given = read_given([left, right], faces, landmarks)
    recognizer = _load(store, model, device)
    answer = recognizer.verify(given[0].face, given[1].face, pairs=pairs)
    if as_json:
        found = [each.describe() for each in given]
        print(json.dumps({**asdict(answer), "faces": found, "model": recognizer.model.key}))
        return
    verdict = "the same identity" if answer.same else "different identities"
    print(f"{verdict}: cosine {answer.cosine:.3f}, same above {answer.threshold:.3f}")
    domain = f", {answer.domain}," if answer.domain else ""
    print(
        f"On the {answer.pairs:,} pairs of {answer.set}{domain} accuracy is {answer.accuracy:.2%}, and this threshold "
        f"accepts {answer.far:.2%} of the pairs of different identities."
    )
    if answer.domain:
        print("These rates do not hold for photographs: evaluate on photographs (evaluation.sets) and give --set.")


def identify(
    store: Store,
    images: Images,
    top: Annotated[int, typer.Option(min=1, help="Candidates to show for each image.")] = 5,
    by: Annotated[
        By,
        typer.Option(
            help="reranked: the most probable codes, ranked by z·h. codes: ranked by probability. "
            "exhaustive: all identities, ranked by z·h."
        ),
    ] = By.reranked,
    gallery: Annotated[
        str | None, typer.Option("--gallery", metavar="NAME", help="Search people of `gif enroll` instead.")
    ] = None,
    faces: Faces = FaceModes.auto,
    every: All = False,
    draw: Draw = None,
    landmarks: Landmarks = None,
    model: Model = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Find which of the identities in the training set, or in a gallery, an image shows, or report it as unknown.

    z·h is the cosine between an image's feature and an identity's code vector.

    Examples:
      gif identify a.jpg

      gif identify photos/*.jpg --top 1 --json

      gif identify group.jpg --all --draw named.jpg

      gif identify photo.jpg --gallery staff

      gif identify a.jpg --by exhaustive --model training/4f2a
    """
    check_drawing(draw, images)
    given = read_given(images, faces, landmarks, every=every, skip=True)
    if gallery is not None:
        recognizer, answers, promise = _search_gallery(store, gallery, given, top, model, device)
    else:
        recognizer = _load(store, model, device)
        answers = recognizer.identify([each.face for each in given], top, by.value)
        promise = recognizer.calibration(by.value).describe()
    names = [_name(answer) for answer in answers]
    if as_json:
        for each, answer in zip(given, answers, strict=True):
            found = {"image": str(each.path), **each.describe()}
            print(json.dumps({**found, **asdict(answer), "model": recognizer.model.key}))
    else:
        _print_answers(given, answers, of_gallery=gallery is not None)
        print(promise)
    numbered = [f"{each.number} {name}" if each.number else name for each, name in zip(given, names, strict=True)]
    save_drawing(draw, given, numbered, [bool(answer.known) for answer in answers])
    fail_if_skipped(images, given)


def _search_gallery(
    store: str, name: str, given: list[GivenFace], top: int, model: str | None, device: str
) -> tuple[Recognizer, list[Identified], str]:
    """The model of a gallery, its answers, and what its threshold promises."""
    from gif_core.galleries import EnrolledGallery

    if model is not None:
        raise PhotographError(f"--model is not for --gallery: {name} is searched with the model it was enrolled with")
    gallery = EnrolledGallery.open(store, name, device=device, index="exact")
    note_model(gallery.recognizer.model, f"of the gallery {name}, version {gallery.version.number}")
    return gallery.recognizer, gallery.identify([each.face for each in given], top), gallery.describe()


def _load(store: str, model: str | None, device: str) -> Recognizer:
    from gif_core.recognition import Recognizer

    recognizer = Recognizer.load(store, model, device)
    note_model(recognizer.model, recognizer.reason)
    return recognizer


def _print_answers(given: list[GivenFace], answers: list[Identified], *, of_gallery: bool) -> None:
    """A row per candidate; identities of a gallery have no code, and their cosine is that to a template."""
    columns = ("cosine",) if of_gallery else ("identity", "probability of the code", "z·h")
    table = Table("image", "answer", "candidate", *columns)
    for face, answer in zip(given, answers, strict=True):
        for place, each in enumerate(answer.candidates):
            style = "" if answer.known else "yellow"
            first = (escape(Path(face.name).name), Text(_name(answer), style)) if place == 0 else ("", "")
            probability = "–" if each.probability is None else f"{each.probability:.1%}"
            about = () if of_gallery else (str(each.identity_id), probability)
            table.add_row(*first, escape(each.label), *about, f"{each.cosine:.3f}")
        if len(answer.candidates) > 1:
            table.add_section()
    Console().print(table)


def _name(answer: Identified) -> str:
    if answer.known is None:
        return "no threshold"
    return answer.candidates[0].label if answer.known else "unknown"
