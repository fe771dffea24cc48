"""`gif export`: write a trained model for other programs and other people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.models import note_model
from flows.cli.options import Model, Store, check_out
from gif_core.artifacts import ArtifactStore, find_model
from schemas.errors import GifError
from schemas.files import BACKBONE_FILE, MODEL_FILE
from schemas.sharing import LICENCE_PATTERN, UNKNOWN_LICENCE

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(help="Write a trained model for other programs and other people.", no_args_is_help=True)


Out = Annotated[
    Path,
    typer.Option("--out", "-o", dir_okay=False, callback=check_out, help="The file to write, in a folder that exists."),
]


@app.command("onnx")
def onnx(
    store: Store,
    out: Out = Path("backbone.onnx"),
    model: Model = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights and activations of eight bits.")] = False,
) -> None:
    """Write the network as ONNX, for onnxruntime and for insightface.model_zoo.get_model.

    Input: any number of RGB images of 112x112 pixels, scaled by (x - 127.5) / 127.5. Output: features. The output of
    onnxruntime is compared with that of torch before the file gets its name.

    With --int8 ranges are calibrated on faces of the training, and the accuracy before and after is measured on the
    held-out pairs of the run. The features differ from those of the exact network, so enrol again with them.

    Needs: pip install onnx onnxruntime onnxscript

    Examples:
      gif export onnx --out backbone.onnx

      gif export onnx --model training/4f2a --out model.onnx

      gif export onnx --int8 --out small.onnx
    """
    from gif_core.sharing import export_onnx

    if int8:
        print(_export_int8(store, model, out))
        return
    difference = export_onnx(_open(store, model), out)
    checked = (
        "not compared: onnxruntime is not installed" if difference is None else f"onnxruntime: {difference:.1g} off"
    )
    print(f"{out}: {checked}")


@app.command("torch")
def torch(
    store: Store,
    out: Out = Path("backbone.pth"),
    model: Model = None,
) -> None:
    """Write the weights as a state dict with insightface's names, as its `backbone.pth` files are.

    Examples:
      gif export torch --out backbone.pth

      gif export torch --model 20260102 --out backbone.pth
    """
    from gif_core.sharing import export_torch

    backbone = _open(store, model)
    export_torch(backbone, out)
    print(f"{out}: {sum(parameter.numel() for parameter in backbone.parameters()):,} parameters")


@app.command("hf")
def hf(
    store: Store,
    out: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="The folder to write; it must not exist or be empty.")
    ] = Path("model"),
    model: Model = None,
    licence: Annotated[
        str, typer.Option("--license", metavar="ID", help="Licence in the model card, such as mit or cc-by-nc-4.0.")
    ] = UNKNOWN_LICENCE,
    push: Annotated[
        str | None, typer.Option("--push", metavar="OWNER/NAME", help="Upload the folder to this repository.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="A repository that --push creates is public.")] = False,
) -> None:
    """Write a folder as the Hugging Face hub wants it: safetensors, config.json with digests, scores, a model card.

    The card states data, scores with protocol and flags, thresholds, limits and lineage. No image, label, code or
    vector of an identity is in the folder. `gif pull` reads it back.

    Examples:
      gif export hf --out my-model --license cc-by-nc-4.0

      gif export hf --out my-model --push me/my-model
    """
    from gif_core.sharing import check_can_push, export_folder, push_folder

    if not re.match(LICENCE_PATTERN, licence):
        raise GifError(f"--license {licence!r}: give an identifier such as mit or cc-by-nc-4.0, not a sentence")
    if push is not None:
        check_can_push()
    opened = ArtifactStore(store)
    found = find_model(opened, model)
    note_model(found.artifact.ref, found.reason)
    shared = export_folder(opened, found.artifact, out, name=push or out.resolve().name, licence=licence)
    size = sum(file.size for file in shared.files)
    print(f"{out}: {shared.backbone}, {size / 1e6:.1f} MB; read README.md in it before you hand it on")
    if push is not None:
        print(push_folder(out, push, private=not public))


def _export_int8(store: str, model: str | None, out: Path) -> str:
    from gif_core.sharing import export_int8, open_own_faces

    opened = ArtifactStore(store)
    done = export_int8(_open(store, model), open_own_faces(opened, find_model(opened, model).artifact), out)
    size = f"{out}: {done.bytes_after / 1e6:.1f} MB, {done.bytes_before / 1e6:.1f} MB with 32 bits"
    if not done.pairs:
        return f"{size}; accuracy not measured: no identity was held out (ingestion.held_out)"
    return f"{size}; accuracy on {done.pairs:,} held-out pairs {done.after:.2%}, {done.before:.2%} with 32 bits"


def _open(store: str, model: str | None) -> nn.Module:
    from gif_core.training import load_backbone

    found = find_model(ArtifactStore(store), model)
    note_model(found.artifact.ref, found.reason)
    return load_backbone(found.artifact.path(BACKBONE_FILE), found.artifact.path(MODEL_FILE))
