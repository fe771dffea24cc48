"""Photographs given to `gif embed`, `gif verify` and `gif identify`: finding their faces, notes, annotated pictures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.output import Console
from schemas.errors import GifError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gif_core.detection import AlignedFace

DRAWN = (".jpg", ".jpeg", ".png")


class PhotographError(GifError, ValueError):
    """An option that does not fit the photographs."""


class FaceModes(StrEnum):
    """How faces are found; the same as `gif_core.detection.FACE_MODES`."""

    auto = "auto"
    aligned = "aligned"
    detect = "detect"


Faces = Annotated[
    FaceModes,
    typer.Option(
        "--faces",
        help="auto: images of 112×112 pixels are aligned faces, in others faces are detected. aligned: all images are "
        "aligned faces, and resized. detect: faces are detected in all.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Answer for every face in a photograph, not for the largest only.")]
Draw = Annotated[
    Path | None, typer.Option("--draw", metavar="FILE", help="Save the photograph with boxes and names, .jpg or .png.")
]
Landmarks = Annotated[
    Path | None,
    typer.Option(
        "--landmarks",
        exists=True,
        dir_okay=False,
        help="Lines of `image.jpg x1 y1 … x5 y5` to align by, instead of detecting faces.",
    ),
]


@dataclass(frozen=True)
class GivenFace:
    """A face of a photograph that was given on the command line."""

    path: Path
    face: AlignedFace
    number: int | None = None
    """Its place among the faces of the photograph, largest first; None if only the largest is asked for."""

    @property
    def name(self) -> str:
        """The path, with the number of the face if every face is asked for."""
        return str(self.path) if self.number is None else f"{self.path}#{self.number}"

    def describe(self) -> dict[str, Any]:
        """Where the face is and what is doubtful about it, for JSON; empty for aligned images."""
        found = self.face.detection
        if found is None:
            return {}
        box = [round(each, 1) for each in found.box]
        return {"box": box, "score": round(found.score, 3), "remarks": list(self.face.remarks)}


def read_given(
    images: Sequence[Path],
    mode: FaceModes,
    landmarks: Path | None = None,
    *,
    every: bool = False,
    skip: bool = False,
) -> list[GivenFace]:
    """The largest face of every photograph, or all of them; doubts about them are printed on stderr.

    A photograph without a face is an error; with `skip` it is left out with a note if others have one.
    """
    from gif_core.recognition import NotAnImageError, read_faces, read_points

    points = read_points(landmarks, images) if landmarks else [None] * len(images)
    given: list[GivenFace] = []
    refused: list[NotAnImageError] = []
    for path, points_52 in zip(images, points, strict=True):
        try:
            faces = read_faces(path, mode.value, points_52)
        except NotAnImageError as error:
            refused.append(error)
            continue
        some = list(enumerate(faces, start=1)) if every else [(None, faces[0])]
        given += [GivenFace(path, face, number) for number, face in some]
    if refused and not (skip and given):
        raise refused[0]
    for mistake in refused:
        _note(f"{mistake}; it is left out")
    _note_doubts(given, aligned=landmarks is not None)
    return given


def fail_if_skipped(images: Sequence[Path], given: Sequence[GivenFace]) -> None:
    """End with status 1 if photographs were left out, so that scripts see it."""
    if len({each.path for each in given}) < len(set(images)):
        raise typer.Exit(1)


def _note_doubts(given: Sequence[GivenFace], *, aligned: bool) -> None:
    """Print what is doubtful about faces; with `aligned` they are known to be aligned."""
    from gif_core.detection import doubt_alignment

    for each in given:
        doubts = [remark for remark in each.face.remarks if each.number is None or not remark.startswith("one of")]
        if each.face.detection is None and not aligned and (doubt := doubt_alignment(each.face.pixels_HWC)):
            doubts.append(doubt)
        if doubts:
            hint = "; the largest is used, --all answers for each" if each.number is None and each.face.others else ""
            _note(f"{each.name}: {', '.join(doubts)}{hint}")


def _note(text: str) -> None:
    Console(stderr=True).print(Text.assemble(("note: ", "bold yellow"), text), soft_wrap=True)


def check_drawing(out: Path | None, images: Sequence[Path]) -> None:
    """Refuse `--draw` for several photographs, or for a file that is not a picture."""
    if out is not None and len(images) != 1:
        raise PhotographError(f"--draw {out} takes one photograph, not {len(images)}")
    if out is not None and out.suffix.lower() not in DRAWN:
        raise PhotographError(f"--draw {out}: the name must end with {' or '.join(DRAWN)}")


def save_drawing(
    out: Path | None, given: Sequence[GivenFace], names: Sequence[str], known: Sequence[bool] | None = None
) -> None:
    """Write the photograph with the boxes and names of its faces, if that was asked for."""
    if out is None:
        return
    from gif_core.detection import draw_faces, encode_picture
    from gif_core.images import decode_bounded, read_image_file

    found = [each.face.detection for each in given if each.face.detection]
    if len(found) < len(given):
        raise PhotographError(
            f"--draw {out}: {given[0].path} was taken as an aligned face; --faces detect finds its box"
        )
    drawn = draw_faces(decode_bounded(read_image_file(given[0].path)), found, names, known)
    out.write_bytes(encode_picture(drawn, out.suffix.lower()))
    print(out)
