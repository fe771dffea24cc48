"""`gif export`: a trained backbone for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Store
from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.tags import resolve

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(help="Write a trained backbone for other programs.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(metavar="[ARTIFACT]", help="A training artifact: stage/key, first digits of a key, or stage@tag."),
]
LATEST = "training@latest"


@app.command("onnx")
def onnx(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("backbone.onnx"),
    name: Name = LATEST,
) -> None:
    """Write the network as ONNX: any number of images, RGB, 112x112, (x - 127.5) / 127.5, to features.

    The file is compared with onnxruntime before it takes its name. Needs: pip install 'gif[onnx]'

    Examples:
      gif export onnx --out backbone.onnx

      gif export onnx training/4f2a --out champion.onnx
    """
    from gif_core.exporting import export_onnx

    difference = export_onnx(_open(store, name), out)
    checked = (
        "not compared: onnxruntime is not installed" if difference is None else f"onnxruntime: {difference:.1g} off"
    )
    print(f"{out}: {checked}")


@app.command("torch")
def torch(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("backbone.pth"),
    name: Name = LATEST,
) -> None:
    """Write the weights as a state dict with insightface's names, as its `backbone.pth` files are.

    Examples:
      gif export torch training@latest --out backbone.pth
    """
    from gif_core.exporting import export_torch

    model = _open(store, name)
    export_torch(model, out)
    print(f"{out}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters")


def _open(store: str, name: str) -> nn.Module:
    from gif_core.exporting import ExportError
    from gif_core.models import load_backbone

    opened = ArtifactStore(store)
    artifact = opened.open(resolve(opened, name))
    if artifact.ref.stage != "training":
        raise ExportError(f"{artifact.ref} is not a trained model: name an artifact of the stage training")
    return load_backbone(artifact.path("backbone.safetensors"), artifact.path("model.json"))
