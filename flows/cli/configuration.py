"""`gif config`: show and check settings before a run."""

import json
from typing import Annotated

import typer
import yaml
from rich.syntax import Syntax

from flows.cli.options import Overrides
from flows.cli.output import Console
from schemas.loading import load_config
from schemas.presets import PRESETS
from schemas.run import RunConfig

app = typer.Typer(help="Show, check and document the settings of a run.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help=f"A YAML file or a preset: {', '.join(PRESETS)}.")]


@app.command()
def show(source: Source = "demo", overrides: Overrides = None) -> None:
    """Print every setting with its value, as YAML that can be edited and run.

    Examples:
      gif config show demo > run.yaml

      gif config show run.yaml --set training.epochs=10
    """
    settings = load_config(source, overrides).model_dump(mode="json")
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default"))
    else:
        print(text, end="")


@app.command()
def validate(source: Source, overrides: Overrides = None) -> None:
    """Check a configuration; errors name the field, the value and the allowed values.

    Example:
      gif config validate run.yaml
    """
    load_config(source, overrides)
    print(f"{source} is a valid configuration")


@app.command()
def schema() -> None:
    """Print the JSON schema of a configuration, for editors and for the Prefect UI."""
    print(json.dumps(RunConfig.model_json_schema(), indent=2))
