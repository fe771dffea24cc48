"""`gif artifacts`: list, show, check and clean up stored artifacts."""

from datetime import timedelta
from itertools import chain
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from flows.cli.options import Store
from flows.cli.output import Console
from flows.cli.tables import format_age, format_metric
from gif_core.artifacts import (
    ArtifactStore,
    cache,
    check_artifacts,
    check_records,
    find_leftovers,
    find_unneeded,
    list_tags,
    remove_leftovers,
    remove_unneeded,
    resolve,
)
from gif_core.runtime import size

app = typer.Typer(help="List, show, check and clean up artifacts.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Remove what is listed. Without this option nothing is removed.")]
Name = Annotated[str, typer.Argument(metavar="ARTIFACT", help="stage/key, the first digits of a key, or stage@tag.")]


@app.command("ls")
def ls(store: Store) -> None:
    """List all artifacts, newest first.

    Example:
      gif artifacts ls --store s3://bucket/artifacts
    """
    opened = ArtifactStore(store)
    tags: dict[tuple[str, str], list[str]] = {}
    for tag in list_tags(opened):
        tags.setdefault((tag.ref.stage, tag.ref.key), []).append(tag.name)
    table = Table("artifact", "tag", "size", "files", "created", "seconds")
    for manifest in opened.manifests():
        table.add_row(
            f"{manifest.stage}/{manifest.key[:12]}",
            ", ".join(tags.get((manifest.stage, manifest.key), [])),
            size(manifest.size),
            str(len(manifest.files)),
            format_age(manifest.created_at),
            f"{manifest.seconds:.1f}",
        )
    Console().print(table)


@app.command("show")
def show(name: Name, store: Store) -> None:
    """Show one artifact: its files, metrics, settings and what it was made from.

    Examples:
      gif artifacts show training/4f2a

      gif artifacts show tokenization@latest
    """
    opened = ArtifactStore(store)
    artifact = opened.open(resolve(opened, name))
    manifest, console = artifact.manifest, Console()
    console.print(f"[bold]{artifact.ref}[/]  {artifact.ref.uri}", soft_wrap=True, highlight=False)
    console.print(f"made {format_age(manifest.created_at)} in {manifest.seconds:.1f} s by gif {manifest.code_version}")
    if manifest.gpu_seconds:
        peak = size(manifest.peak_gpu_memory or 0)
        console.print(f"used {manifest.gpu_hours:.2f} GPU hours and at most {peak} of a GPU")
    if manifest.environment:
        console.print(f"made with {manifest.environment}", soft_wrap=True, highlight=False)
    if pulled := manifest.settings.get("origin"):
        console.print(f"pulled from {pulled['repository']}, commit {pulled['commit']}", soft_wrap=True, highlight=False)
    for stage, source in manifest.inputs.items():
        console.print(f"made from {stage}/{source.key[:12]}")
    files = Table("file", "size", "sha256", "path")
    for file in manifest.files:
        files.add_row(file.name, size(file.size), file.sha256[:12], file.path)
    metrics = Table("metric", "value")
    for metric, value in manifest.metrics.items():
        metrics.add_row(metric, format_metric(value))
    console.print(files, metrics)
    console.print_json(data=manifest.settings)


@app.command("check")
def check(
    store: Store,
    name: Annotated[str | None, typer.Argument(metavar="[ARTIFACT]", help="One artifact; all if not given.")] = None,
) -> None:
    """Read every file and compare it with its digest; the exit code is 1 if a file is damaged.

    Without a name, tags, run records and decisions are checked too.

    Examples:
      gif artifacts check

      gif artifacts check training/4f2a
    """
    opened, console = ArtifactStore(store), Console()
    refs = [resolve(opened, name)] if name else opened.refs()
    everything = chain(check_artifacts(opened, refs), () if name else check_records(opened))
    checked = list(track(everything, "checking", transient=True, console=Console(stderr=True)))
    faults = [file for file in checked if file.fault]
    for file in faults:
        console.print(f"damaged: {file.artifact} {file.name}: {file.fault}", soft_wrap=True, markup=False)
    console.print(f"{len(refs)} artifacts, {len(checked)} files, {len(faults)} damaged")
    raise typer.Exit(1 if faults else 0)


@app.command("gc")
def gc(
    store: Store,
    hours: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Keep leftovers modified in the last HOURS hours.")
    ] = 24.0,
    yes: Yes = False,
) -> None:
    """List the leftovers of killed or failed attempts, and remove them with --yes; published artifacts stay.

    Leftovers of dead processes of this machine are listed whatever their age.

    Examples:
      gif artifacts gc

      gif artifacts gc --yes
    """
    opened, console = ArtifactStore(store), Console()
    leftovers = find_leftovers(opened, older_than=timedelta(hours=hours).total_seconds())
    for leftover in leftovers:
        console.print(f"{leftover.path}  {size(leftover.size)}", soft_wrap=True, highlight=False)
    if yes:
        remove_leftovers(opened, leftovers)
    console.print(f"{len(leftovers)} leftovers, {size(sum(item.size for item in leftovers))} {_done(yes)}")


@app.command("prune")
def prune(
    store: Store,
    keep_runs: Annotated[int, typer.Option(metavar="N", min=1, help="Keep what the newest N runs made or reused.")],
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Keep artifacts younger than DAYS days.")
    ] = 0.0,
    yes: Yes = False,
) -> None:
    """List published artifacts that are no longer needed, and remove them with --yes.

    Needed are the artifacts of kept runs, tagged ones, the current and the previous champion, and all their inputs.
    The command refuses to start while a run is in progress.

    Examples:
      gif artifacts prune --keep-runs 20 --older-than 30

      gif artifacts prune --keep-runs 20 --older-than 30 --yes
    """
    opened, console = ArtifactStore(store), Console()
    found = find_unneeded(opened, keep_runs=keep_runs, older_than=timedelta(days=older_than))
    for manifest in found:
        about = f"{size(manifest.size)}  {format_age(manifest.created_at)}"
        console.print(f"{manifest.stage}/{manifest.key[:12]}  {about}", soft_wrap=True, highlight=False)
    gone = remove_unneeded(opened, found) if yes else found
    console.print(f"{len(gone)} artifacts, {size(sum(manifest.size for manifest in gone))} {_done(yes)}")


def _done(yes: bool) -> str:
    return "removed" if yes else "would be removed: --yes removes them"


@app.command("cache")
def show_cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all copies that no running process uses.")] = False,
) -> None:
    """Show the local copies of files of remote stores: their number, their size and the size limit.

    When the limit ($GIF_CACHE_SIZE, such as 200GB) is reached, the least recently used copies are removed.

    Examples:
      gif artifacts cache

      gif artifacts cache --clear
    """
    console = Console()
    if clear:
        console.print(f"{size(cache.clear())} removed")
    found = cache.describe()
    console.print(f"{found.folder}", soft_wrap=True, highlight=False)
    console.print(f"{found.files} files, {size(found.size)} of {size(found.limit)}, {size(found.in_use)} in use")
