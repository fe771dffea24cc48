"""`gif embed`, `gif verify` and `gif identify`: a trained model in use."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.cli.encoders import Device, check_format, print_vectors, save_vectors
from flows.cli.models import note_model
from flows.cli.options import Model, Store

if TYPE_CHECKING:
    from gif_core.recognition import Identified, Points, Recognizer

Images = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Faces: JPEG, PNG, WebP or BMP.")]
Image = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A face: JPEG, PNG, WebP or BMP.")]
Landmarks = Annotated[
    Path | None,
    typer.Option(
        "--landmarks",
        exists=True,
        dir_okay=False,
        help="Lines of `image.jpg x1 y1 … x5 y5` to align by. Without it images must be aligned; they are resized.",
    ),
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
    landmarks: Landmarks = None,
    model: Model = None,
    device: Device = "auto",
) -> None:
    """Compute features of faces with a trained model: the sum over image and mirror image, of unit length.

    Examples:
      gif embed a.jpg b.jpg

      gif embed photos/*.jpg --landmarks points.txt --out features.parquet
    """
    check_format(out)
    points = _read_points(landmarks, images)
    features_BD = _load(store, model, device).embed(images, points)
    if out is None:
        print_vectors(images, features_BD)
    else:
        save_vectors(out, images, features_BD)


def verify(
    store: Store,
    left: Image,
    right: Image,
    pairs: Annotated[
        str | None,
        typer.Option("--set", metavar="SET", help="Use the threshold of this evaluated set.", show_default="held_out"),
    ] = None,
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
    points = _read_points(landmarks, [left, right])
    recognizer = _load(store, model, device)
    answer = recognizer.verify(left, right, points, pairs=pairs)
    if as_json:
        print(json.dumps({**asdict(answer), "model": recognizer.model.key}))
        return
    verdict = "the same identity" if answer.same else "different identities"
    print(f"{verdict}: cosine {answer.cosine:.3f}, same above {answer.threshold:.3f}")
    print(
        f"On the {answer.pairs:,} pairs of {answer.set} accuracy is {answer.accuracy:.2%}, and this threshold accepts "
        f"{answer.far:.2%} of the pairs of different identities."
    )


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
    landmarks: Landmarks = None,
    model: Model = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Find which of the identities in the training set an image shows, or report it as unknown.

    z·h is the cosine between an image's feature and an identity's code vector.

    Examples:
      gif identify a.jpg

      gif identify photos/*.jpg --top 1 --json

      gif identify a.jpg --by exhaustive --model training/4f2a
    """
    points = _read_points(landmarks, images)
    recognizer = _load(store, model, device)
    answers = recognizer.identify(images, top, by.value, points)
    if as_json:
        for path, answer in zip(images, answers, strict=True):
            print(json.dumps({"image": str(path), **asdict(answer), "model": recognizer.model.key}))
        return
    _print_answers(images, answers)
    print(recognizer.calibration(by.value).describe())


def _load(store: str, model: str | None, device: str) -> Recognizer:
    from gif_core.recognition import Recognizer

    recognizer = Recognizer.load(store, model, device)
    note_model(recognizer.model, recognizer.reason)
    return recognizer


def _read_points(landmarks: Path | None, images: list[Path]) -> list[Points] | None:
    from gif_core.recognition import read_points

    return read_points(landmarks, images) if landmarks else None


def _print_answers(images: list[Path], answers: list[Identified]) -> None:
    table = Table("image", "answer", "candidate", "identity", "probability of the code", "z·h")
    for path, answer in zip(images, answers, strict=True):
        for place, each in enumerate(answer.candidates):
            first = (escape(path.name), _name(answer)) if place == 0 else ("", "")
            probability = "–" if each.probability is None else f"{each.probability:.1%}"
            table.add_row(*first, escape(each.label), str(each.identity_id), probability, f"{each.cosine:.3f}")
        table.add_section()
    Console().print(table)


def _name(answer: Identified) -> str:
    if answer.known is None:
        return "no threshold"
    return escape(answer.candidates[0].label) if answer.known else "[yellow]unknown[/]"
