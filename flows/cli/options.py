"""Options that several commands share."""

from typing import Annotated

import typer

from flows.credentials import load_credentials
from schemas.addresses import check_address
from schemas.run import default_store


def reach(address: str) -> str:
    """An address of a store that this process may open."""
    load_credentials(check_address(address))
    return address


Store = Annotated[
    str,
    typer.Option(
        "--store",
        help="Folder or URL of the artifact store ($GIF_STORE).",
        show_default="artifacts",
        default_factory=default_store,
        callback=reach,
    ),
]

Run = Annotated[str | None, typer.Option(metavar="RUN", help="A run's id or its beginning; the newest if not given.")]
