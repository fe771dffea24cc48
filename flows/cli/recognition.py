"""`gif embed`, `gif verify` and `gif identify`: a trained model in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.cli.encoders import Device, check_format, print_vectors, save_vectors
from flows.cli.models import Run, open_model
from flows.cli.options import Store
from schemas.errors import GifError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flows.cli.models import Artifacts
    from gif_core.recognition import Method

BEAM = 64

Images = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Faces: JPEG, PNG, WebP or BMP.")]
Image = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A face: JPEG, PNG, WebP or BMP.")]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="ARTIFACT",
        help="A model by its key's first digits or its tag; if none is named it is the champion, "
        "or that of the newest run where there is no champion.",
    ),
]
Points = Annotated[
    Path | None,
    typer.Option(
        "--landmarks",
        exists=True,
        dir_okay=False,
        help="Lines of `image.jpg x1 y1 … x5 y5` to align by; without it images are taken as aligned, and resized.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a line for each answer.")]


def embed(
    store: Store,
    images: Images,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the features, as .npy or .parquet.")] = None,
    landmarks: Points = None,
    run: Run = None,
    key: Key = None,
    device: Device = "auto",
) -> None:
    """Turn faces into features of a trained model: image and mirror added, of unit length.

    Examples:
      gif embed a.jpg b.jpg

      gif embed photos/*.jpg --landmarks points.txt --out features.parquet
    """
    check_format(out)
    features_BD = _embed(open_model(store, run, key), images, landmarks, device)
    if out is None:
        print_vectors(images, features_BD)
    else:
        save_vectors(out, images, features_BD)


def verify(
    store: Store,
    left: Image,
    right: Image,
    pairs: Annotated[
        str | None, typer.Option("--set", metavar="SET", help="The set of evaluation whose threshold counts.")
    ] = None,
    landmarks: Points = None,
    run: Run = None,
    key: Key = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Say whether two faces are of one person, by the threshold that evaluation found best.

    Examples:
      gif verify a.jpg b.jpg

      gif verify a.jpg b.jpg --set LFW --run 20260102
    """
    from gif_core.recognition import pair_threshold

    artifacts = open_model(store, run, key)
    known = pair_threshold(_evaluation(artifacts).path("scores.json"), pairs)
    features_BD = _embed(artifacts, [left, right], landmarks, device, flip=known.flip)
    cosine = float(features_BD[0] @ features_BD[1])
    same = 2 - 2 * cosine < known.distance
    if as_json:
        about = {"set": known.set, "accuracy": known.accuracy, "far": known.far}
        about["model"] = artifacts["training"].ref.key
        print(json.dumps({"same": same, "cosine": cosine, "threshold": known.cosine, **about}))
        return
    print(
        f"{'the same person' if same else 'different identities'}: cosine {cosine:.3f}, same above {known.cosine:.3f}"
    )
    print(
        f"On the {known.pairs:,} pairs of {known.set} accuracy is {known.accuracy:.2%}, and at this threshold "
        f"{known.far:.2%} of different identities are taken for one."
    )


def identify(
    store: Store,
    images: Images,
    top: Annotated[int, typer.Option(min=1, help="Candidates to show for each image.")] = 5,
    by: Annotated[
        str,
        typer.Option(
            help="reranked: the likeliest codes, by z·h; codes: by probability alone; exhaustive: everyone, by z·h."
        ),
    ] = "reranked",
    landmarks: Points = None,
    run: Run = None,
    key: Key = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Say who is on an image among the identities whom the model was trained on, or that it is nobody of them.

    Examples:
      gif identify a.jpg

      gif identify photos/*.jpg --top 1 --json

      gif identify a.jpg --by codes
    """
    from gif_core.recognition import identify_faces, open_gallery, read_calibration

    artifacts, method = open_model(store, run, key), _check_method(by)
    calibration = read_calibration(artifacts.get("evaluation"), method)
    gallery = open_gallery(artifacts, beam=calibration.beam or BEAM, device=_pick(device), method=method)
    features_BD = _embed(artifacts, images, landmarks, device, flip=calibration.flip)
    answers = identify_faces(gallery, features_BD, artifacts["ingestion"].path("identities.parquet"), top, calibration)
    model = artifacts["training"].ref.key
    rows = [{"image": str(path), **answer, "model": model} for path, answer in zip(images, answers, strict=True)]
    if as_json:
        print("\n".join(map(json.dumps, rows)))
        return
    _print_answers(rows)
    print(calibration.describe())


def _print_answers(rows: list[dict[str, Any]]) -> None:
    table = Table("image", "answer", "candidate", "identity", "probability of the code", "z·h")
    for row in rows:
        for place, each in enumerate(row["candidates"]):
            first = (escape(Path(row["image"]).name), _answer(row)) if place == 0 else ("", "")
            probability = "–" if each["probability"] is None else f"{each['probability']:.1%}"
            cosine = f"{each['cosine']:.3f}"
            table.add_row(*first, escape(each["label"]), str(each["identity_id"]), probability, cosine)
        table.add_section()
    Console().print(table)


def _answer(row: dict[str, Any]) -> str:
    if row["known"] is None:
        return "no threshold"
    return escape(row["candidates"][0]["label"]) if row["known"] else "[yellow]unknown[/]"


def _check_method(name: str) -> Method:
    from gif_core.recognition import METHODS

    for method in METHODS:
        if method == name:
            return method
    raise GifError(f"--by {name}: there are {', '.join(METHODS)}")


def _evaluation(artifacts: Artifacts) -> Any:
    if "evaluation" not in artifacts:
        raise GifError(
            f"{artifacts['training'].ref} was not evaluated, so it has no threshold: run 'gif run --from evaluation'"
        )
    return artifacts["evaluation"]


def _embed(
    artifacts: Artifacts, paths: list[Path], landmarks: Path | None, device: str, *, flip: bool = True
) -> NDArray[np.float32]:
    import numpy as np

    from gif_core.images import read_face_file, read_landmarks
    from gif_core.recognition import embed_faces, points_of
    from gif_core.training import open_backbone

    points = read_landmarks(str(landmarks)) if landmarks else None
    faces = [read_face_file(path, points_of(path, points) if points else None) for path in paths]
    on = _pick(device)
    return embed_faces(open_backbone(artifacts["training"], on), np.stack(faces), on, flip=flip)


def _pick(device: str) -> Any:
    from gif_core.runtime import pick_device

    return pick_device(device)
