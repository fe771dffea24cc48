"""`gif retrain`, `gif promote`, `gif rollback` and `gif champion`: which model is in use, and why."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from flows.cli.environment import prepare
from flows.cli.options import Config, Overrides, Preset, Store, Verbose, read_config
from flows.cli.output import Console
from flows.cli.tables import format_age
from gif_core.artifacts import (
    ArtifactStore,
    ChampionError,
    find_champion,
    find_evaluation,
    find_model,
    read_history,
    settle,
)
from gif_core.retraining import promote as make_champion
from gif_core.retraining import roll_back
from schemas.explaining import explain
from schemas.loading import ConfigError
from schemas.retraining import CHAMPION, Decision, RetrainingPolicy, RetrainingResult
from schemas.safe_yaml import UnsafeYamlError, parse_yaml

Tag = Annotated[str, typer.Option(metavar="TAG", help="Tag of the champion, if the store has several.")]
Because = Annotated[str, typer.Option(metavar="TEXT", help="The reason, kept in the history.")]
LONGEST = 90
"""Characters of a reason in the list."""


def retrain(
    config: Config = None,
    preset: Preset = None,
    overrides: Overrides = None,
    policy: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="The policy, a YAML file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train even if nothing is new.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train a challenger if the sources hold something new, and promote it if it is better than the champion.

    Without a champion, the new model becomes the champion. The deployment `retrain` does the same every week.

    Examples:
      gif retrain --config run.yaml

      gif retrain --config run.yaml --policy policy.yaml --force
    """
    settings, rules = read_config(config, preset, overrides), _read_policy(policy)
    prepare(verbose=verbose)
    notes = Console(stderr=True)
    with notes.status("Loading …"):
        from flows.cli.server import ensure_server
        from flows.retrain import retrain as flow
        from tasks.retraining import describe_result
    ensure_server(notes)
    result: RetrainingResult = flow(settings, rules, force)
    Console().print(describe_result(result), markup=False, highlight=False, soft_wrap=True)


def promote(
    store: Store,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="A run id, training/KEY or the first digits of the key, or a tag.")
    ],
    because: Because = "by hand",
    tag: Tag = CHAMPION,
) -> None:
    """Make a model the champion, whatever a comparison would say.

    Examples:
      gif promote --model 20260301-1200 --because "first model for production"

      gif promote --model training/4f2a
    """
    opened = ArtifactStore(store)
    found = find_model(opened, model)
    evaluation = find_evaluation(opened, found.artifact)
    ingestion = found.artifact.manifest.inputs.get("ingestion")
    about = {
        "ingestion": ingestion.key if ingestion else None,
        "evaluation": evaluation.ref.key if evaluation else None,
        "run_id": found.run_id,
    }
    decision = make_champion(opened, found.artifact, because=because, tag=tag, **about)
    print(f"{found.artifact.ref} is the {tag} now (decision {decision.number})")


def rollback(
    store: Store,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model that was champion: training/KEY or the first digits of the key, or its run id.",
            show_default="the champion before",
        ),
    ] = None,
    because: Because = "by hand",
    tag: Tag = CHAMPION,
) -> None:
    """Go back to the champion before the one in use; a second rollback goes back one step further.

    Examples:
      gif rollback --because "false matches at the gate"

      gif rollback --model training/4f2a
    """
    opened = ArtifactStore(store)
    key = find_model(opened, model).artifact.ref.key if model else None
    decision = roll_back(opened, because=because, tag=tag, to=key)
    print(f"training/{decision.champion[:12]} is the {tag} again (decision {decision.number})")


def champion(store: Store, tag: Tag = CHAMPION) -> None:
    """Show the model in use and the decisions that led to it, newest first.

    Example:
      gif champion
    """
    opened = ArtifactStore(store)
    settle(opened, tag)
    current = find_champion(opened, tag)
    if current is None:
        raise ChampionError(f"there is no {tag} in {opened.storage.url}: 'gif promote' or 'gif retrain' makes one")
    print(f"{current.ref} is the {tag}; use it with --model {tag}")
    table = Table("", "decision", "champion", "before", "challenger", "when", "because")
    for entry in reversed(read_history(opened, tag)):
        reason = entry.because if len(entry.because) <= LONGEST else f"{entry.because[: LONGEST - 1]}…"
        table.add_row(str(entry.number), entry.kind, *_keys(entry), format_age(entry.made_at), escape(reason))
    if table.row_count:
        Console().print(table)


def _keys(entry: Decision) -> list[str]:
    return [key[:12] if key else "-" for key in (entry.champion, entry.before, entry.challenger)]


def _read_policy(path: Path | None) -> RetrainingPolicy:
    if path is None:
        return RetrainingPolicy()
    try:
        return RetrainingPolicy.model_validate(parse_yaml(path.read_text(encoding="utf-8")) or {})
    except UnsafeYamlError as error:
        raise ConfigError(f"{path} is not a YAML file: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, RetrainingPolicy.model_json_schema())}") from None
