"""`gif pull`: a model of someone else, ready to use."""

import re
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Store
from gif_core.artifacts import ArtifactStore
from schemas.errors import GifError


def pull(
    store: Store,
    source: Annotated[str, typer.Argument(metavar="FOLDER|OWNER/NAME", help="A folder, or a hub id.")],
    tag: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name that --model takes.", show_default="that of the source")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take a name that another model has.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Branch, tag or commit on the hub.", show_default="main")
    ] = None,
) -> None:
    """Take a model of `gif export hf` into the store, from a folder or from the Hugging Face hub.

    Files on the hub that are too large are not downloaded. The digests are checked, every tensor must fit, and no code
    of the source is run. The model embeds and verifies faces, galleries can be enrolled with it, and a training can
    start from it.

    Examples:
      gif pull my-model

      gif pull me/my-model --tag theirs
    """
    from gif_core.sharing import download_folder, pull_folder, tag_for

    folder, origin = Path(source), None
    if not folder.is_dir():
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
            raise GifError(f"{source} is neither a folder nor a hub id such as owner/name")
        folder, origin = download_folder(source, revision)
    elif revision is not None:
        raise GifError(f"--revision is for the hub, and {source} is a folder: remove it")
    pulled = pull_folder(ArtifactStore(store), folder, tag or tag_for(source), replace=replace, origin=origin)
    shared = pulled.shared
    print(
        f"{pulled.ref}: {shared.backbone}, {shared.embedding_dim} dimensions, licence {shared.license}; digests match"
    )
    if pulled.origin:
        print(f"From {pulled.origin}")
    if not pulled.has_scores:
        print("It came without scores, so it has no threshold: it embeds faces, and galleries can be enrolled with it.")
    print(f"Use it with --model {pulled.tag}, or in a training with start_from: {pulled.ref.key}")
