"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from flows.credentials import load_credentials
from schemas.addresses import check_address
from schemas.errors import GifError
from schemas.loading import ConfigError, load_config
from schemas.presets import MAIN_PRESETS, PRESETS
from schemas.run import RunConfig, default_store


def reach(address: str) -> str:
    """Check a store's address and load the credentials for it."""
    load_credentials(check_address(address))
    return address


def check_out(out: Path | None) -> Path | None:
    """Refuse a file in a missing folder, before anything is computed."""
    if out and not out.parent.is_dir():
        raise GifError(f"--out {out}: there is no folder {out.parent}; make it first (mkdir -p {out.parent})")
    return out


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

Run = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="A run id or its first characters; if omitted the newest run with codes."),
]

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Which model: a tag (champion), training/KEY or the first digits of the key, or a run id.",
        show_default="the champion, else the newest run's",
    ),
]

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="A YAML file.")]
Preset = Annotated[str | None, typer.Option(metavar="NAME", help=f"One of {', '.join(PRESETS)}.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.FIELD=VALUE", help="Change one setting; repeatable."),
]
Page = Annotated[
    Path | None,
    typer.Option("--out", "-o", dir_okay=False, callback=check_out, help="Also write a self-contained HTML page."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log.")]


def read_config(
    config: str | None, preset: str | None, overrides: list[str] | None, *, required: bool = False
) -> RunConfig:
    """The settings that `--config`, `--preset` and `--set` give together; of the demo if none is `required`."""
    if config and preset:
        raise ConfigError("give --config or --preset, not both: a file may begin with 'preset: NAME'")
    if required and not config and not preset:
        raise ConfigError(
            "say what to run: --config run.yaml, or --preset NAME "
            f"({MAIN_PRESETS}; 'gif run -h' lists all); 'gif demo' runs the demonstration"
        )
    return load_config(config or preset or "demo", overrides)
