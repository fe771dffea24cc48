"""`gif export`: write a trained backbone for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.models import note_model
from flows.cli.options import Model, Store
from gif_core.artifacts import ArtifactStore, find_model
from schemas.errors import GifError
from schemas.files import BACKBONE_FILE, MODEL_FILE

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(help="Write a trained backbone for other programs.", no_args_is_help=True)


def check_folder(out: Path) -> Path:
    """Refuse a file in a missing folder, before anything is opened."""
    if not out.parent.is_dir():
        raise GifError(f"--out {out}: there is no folder {out.parent}; make it first (mkdir -p {out.parent})")
    return out


Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", dir_okay=False, callback=check_folder, help="The file to write, in a folder that exists."
    ),
]


@app.command("onnx")
def onnx(
    store: Store,
    out: Out = Path("backbone.onnx"),
    model: Model = None,
) -> None:
    """Write the network as ONNX.

    Input: any number of RGB images of 112x112 pixels, scaled by (x - 127.5) / 127.5. Output: features. The output of
    onnxruntime is compared with that of torch before the file gets its name.

    Needs: pip install onnx onnxruntime onnxscript

    Examples:
      gif export onnx --out backbone.onnx

      gif export onnx --model training/4f2a --out model.onnx
    """
    from gif_core.training import export_onnx

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
    from gif_core.training import export_torch

    backbone = _open(store, model)
    export_torch(backbone, out)
    print(f"{out}: {sum(parameter.numel() for parameter in backbone.parameters()):,} parameters")


def _open(store: str, model: str | None) -> nn.Module:
    from gif_core.training import load_backbone

    found = find_model(ArtifactStore(store), model)
    note_model(found.artifact.ref, found.reason)
    return load_backbone(found.artifact.path(BACKBONE_FILE), found.artifact.path(MODEL_FILE))
