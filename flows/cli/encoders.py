"""`gif encode` and `gif tiny-clip`: try an encoder on images, and train the bundled one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from rich.table import Table

from flows.cli.output import Console
from schemas.embedding import EmbeddingConfig
from schemas.errors import GifError

if TYPE_CHECKING:
    from gif_core.embedding.encoders import ImageEncoder

BATCH = 64
SHOWN = 6
VERIFIED = 300
COMPARED = 5
"""Images whose cosines fit beside them in a narrow terminal."""
FORMATS = (".npy", ".parquet")


class FormatError(GifError, ValueError):
    """A file name with an unknown extension."""


TINY_CLIP = EmbeddingConfig(model="tiny-clip", pretrained="synthetic")

app = typer.Typer(help="Train or test tiny-clip, the small CLIP model bundled with the project.", no_args_is_help=True)

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def encode(
    images: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, help="Aligned faces: JPEG, PNG, WebP or BMP.")
    ],
    encoder: Annotated[str, typer.Option(help="open_clip, timm or backbone.")] = TINY_CLIP.encoder,
    model: Annotated[
        str, typer.Option(help="An architecture of the encoder's library, or tiny-clip.")
    ] = TINY_CLIP.model,
    pretrained: Annotated[
        str, typer.Option(help="A tag of the library, a local checkpoint, or random.")
    ] = TINY_CLIP.pretrained,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A description; repeatable: prints how well each one fits. CLIP only."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the vectors, as .npy or .parquet.")] = None,
    device: Device = "auto",
) -> None:
    """Turn images into unit vectors, and print the cosines between them.

    Examples:
      gif encode a.jpg b.jpg c.jpg

      gif encode a.jpg --ask "a face with glasses" --ask "a face with no glasses"

      gif encode *.jpg --model ViT-B-32-quickgelu --pretrained open_clip_model.safetensors --out vectors.parquet

      gif encode *.jpg --encoder timm --model vit_small_patch14_dinov2 --pretrained model.safetensors

      gif encode *.jpg --encoder backbone --model iresnet50 --pretrained backbone.pth
    """
    check_format(out)
    from gif_core.embedding.encoders import build_encoder
    from gif_core.runtime import pick_device

    config = EmbeddingConfig.model_validate({"encoder": encoder, "model": model, "pretrained": pretrained})
    built = build_encoder(config, pick_device(device))
    vectors_ND = _encode_files(built, images)
    if out is None:
        print_vectors(images, vectors_ND)
    else:
        save_vectors(out, images, vectors_ND)
    if ask:
        _print_answers(built, images, vectors_ND, ask)


@app.command("train")
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write.")] = Path("tiny-clip.safetensors"),
    identities: Annotated[int, typer.Option(min=1, help="Synthetic identities to learn from.")] = 16_000,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over all images.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order, the captions and the initial weights.")] = 0,
    device: Device = "auto",
) -> None:
    """Train tiny-clip on synthetic faces and captions of their attributes: about half an hour on two cores.

    Use the result with --set embedding.pretrained=tiny-clip.safetensors, or test it with gif tiny-clip test.

    Example:
      gif tiny-clip train --epochs 12 --out tiny-clip.safetensors
    """
    from gif_core.embedding.encoders import Recipe, draw_examples, new_model, save_model, train_tiny_clip
    from gif_core.runtime import pick_device

    recipe, console = Recipe(identities=identities, epochs=epochs, seed=seed), Console(stderr=True)
    model = new_model(seed)
    drawn = track(draw_examples(recipe, model), "drawing faces", recipe.identities, console=console)
    images_NHWC = np.concatenate(list(drawn))
    steps = train_tiny_clip(model, images_NHWC, recipe, pick_device(device))
    for step in track(steps, "training", recipe.steps, console=console):
        if step.step % 50 == 0:
            console.print(f"step {step.step} of {step.total}: loss {step.loss:.3f}")
    save_model(model, out)
    print(out)


@app.command("test")
def ask_attributes(
    pretrained: Annotated[str, typer.Option(help="A checkpoint; synthetic is the bundled one.")] = "synthetic",
    identities: Annotated[int, typer.Option(min=1, help="Number of new synthetic identities.")] = 2000,
    device: Device = "auto",
) -> None:
    """Measure how well tiny-clip names the attributes of new identities, and how well it verifies them by itself.

    Attributes are zero-shot: the best-fitting prompt wins.

    Example:
      gif tiny-clip test --pretrained tiny-clip.safetensors
    """
    from gif_core.embedding.encoders import TEST_SEED, OpenClipEncoder, zero_shot
    from gif_core.evaluation import verify_drawn
    from gif_core.runtime import pick_device

    config = TINY_CLIP.model_copy(update={"pretrained": pretrained})
    table = Table("attribute", "accuracy", "always the commonest", "mean over the words", "random guess", "identities")
    encoder = OpenClipEncoder(config, pick_device(device))
    for name, found in zero_shot(encoder, identities).items():
        metrics = (found.accuracy, found.commonest, found.recall, found.chance)
        table.add_row(name, *(f"{100 * metric:.1f} %" for metric in metrics), str(found.identities))
    Console().print(table)
    verified = min(identities, VERIFIED)
    accuracy = verify_drawn(encoder, TEST_SEED, verified)
    print(f"verification of {verified} of these identities by the cosine of two images: {100 * accuracy:.1f} %")


def _encode_files(encoder: ImageEncoder, paths: list[Path]) -> NDArray[np.float32]:
    from gif_core.images import read_face_file

    parts = []
    for start in range(0, len(paths), BATCH):
        images = [read_face_file(path) for path in paths[start : start + BATCH]]
        parts.append(encoder.encode(np.stack(images)).cpu().numpy())
    return np.concatenate(parts)


def check_format(out: Path | None) -> None:
    """Refuse a file name with an unknown extension."""
    if out is not None and out.suffix not in FORMATS:
        raise FormatError(f"--out {out}: the name must end with {' or '.join(FORMATS)}")


def print_vectors(paths: Sequence[Path | str], vectors_ND: NDArray[np.float32]) -> None:
    """Print the first components of each vector, fewer beside cosines, and the cosines between a few vectors."""
    console, compared = Console(), len(paths) if len(paths) <= COMPARED else 0
    shown = SHOWN if compared <= 1 else max(1, SHOWN - compared)
    table = Table("", "image", f"first of {vectors_ND.shape[1]} numbers", *(str(n) for n in range(1, compared + 1)))
    for number, (path, vector) in enumerate(zip(paths, vectors_ND, strict=True), 1):
        some = " ".join(f"{value:+.2f}" for value in vector[:shown])
        cosines = (vectors_ND[:compared] @ vector).tolist()
        table.add_row(str(number), Path(path).name, f"{some} …", *(f"{cosine:.2f}" for cosine in cosines))
    console.print(table)
    if compared > 1:
        console.print("The columns on the right are cosines between the images.", style="dim")
    elif len(paths) > 1:
        console.print(f"Cosines are printed for at most {COMPARED} images; --out saves the vectors.", style="dim")


def _print_answers(encoder: Any, paths: list[Path], vectors_ND: NDArray[np.float32], texts: list[str]) -> None:
    if not hasattr(encoder, "encode_text"):
        raise FormatError("--ask needs an encoder with a text tower: --encoder open_clip")
    scale = float(encoder.model.logit_scale.exp())
    logits = scale * vectors_ND @ encoder.encode_text(texts).cpu().numpy().T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    table = Table("image", *texts)
    for path, row in zip(paths, shares / shares.sum(axis=1, keepdims=True), strict=True):
        table.add_row(path.name, *(f"{100 * share:.0f} %" for share in row))
    Console().print(table)


def save_vectors(out: Path, paths: Sequence[Path | str], vectors_ND: NDArray[np.float32]) -> None:
    """Write `.npy`, or `.parquet` with the images' names."""
    if out.suffix == ".npy":
        np.save(out, vectors_ND)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        values = pa.FixedSizeListArray.from_arrays(pa.array(vectors_ND.ravel()), vectors_ND.shape[1])
        pq.write_table(pa.table({"image": [str(path) for path in paths], "vector": values}), out)
    print(f"{out}: {len(paths)} vectors of {vectors_ND.shape[1]} numbers")
