"""`gif export`: a trained backbone for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.models import Run, choose_model
from flows.cli.options import Store
from gif_core.artifacts import ArtifactStore
from schemas.errors import GifError

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(help="Write a trained backbone for other programs.", no_args_is_help=True)

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="ARTIFACT",
        help="A model by its key's first digits or its tag; if none is named it is the champion, "
        "or that of the newest run where there is no champion.",
    ),
]


def check_folder(out: Path) -> Path:
    """Refuse a file in a folder that is not there, before anything is opened."""
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
    name: Name = None,
    run: Run = None,
) -> None:
    """Write the network as ONNX: any number of images, RGB, 112x112, (x - 127.5) / 127.5, to features.

    The file is compared with onnxruntime before it takes its name. Needs: pip install onnx onnxruntime onnxscript

    Examples:
      gif export onnx --out backbone.onnx

      gif export onnx training/4f2a --out model.onnx
    """
    from gif_core.training import export_onnx

    difference = export_onnx(_open(store, run, name), out)
    checked = (
        "not compared: onnxruntime is not installed" if difference is None else f"onnxruntime: {difference:.1g} off"
    )
    print(f"{out}: {checked}")


@app.command("torch")
def torch(
    store: Store,
    out: Out = Path("backbone.pth"),
    name: Name = None,
    run: Run = None,
) -> None:
    """Write the weights as a state dict with insightface's names, as its `backbone.pth` files are.

    Examples:
      gif export torch --out backbone.pth

      gif export torch --run 20260102 --out backbone.pth
    """
    from gif_core.training import export_torch

    model = _open(store, run, name)
    export_torch(model, out)
    print(f"{out}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters")


def _open(store: str, run: str | None, name: str | None) -> nn.Module:
    from gif_core.training import load_backbone

    training = choose_model(ArtifactStore(store), run, name, named_by="ARTIFACT")
    return load_backbone(training.path("backbone.safetensors"), training.path("model.json"))
