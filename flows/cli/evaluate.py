"""`gif evaluate`: scores of published weights on benchmarks, without training anything."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.cli.options import check_out
from flows.cli.output import Console, note
from gif_core.planning import leave_out_missing_sets, missing_files
from gif_core.reporting import benchmark_of
from schemas.errors import GifError
from schemas.loading import load_config

if TYPE_CHECKING:
    from collections.abc import Generator

    from gif_core.evaluation import SetResult
    from gif_core.runtime import Progress
    from schemas.run import RunConfig

BENCHMARKS = "insightface-r100"
"""A preset with the benchmarks of the paper under one folder of data."""
SHOWN = {
    "accuracy": "accu-\nracy",
    "tar_at_far_0.001": "TAR at\n1e-3",
    "tar_at_far_0.0001": "TAR at\n1e-4",
    "tar_at_far_1e-05": "TAR at\n1e-5",
    "tpir_at_fpir_0.01": "TPIR at\n1e-2",
    "rank_1": "rank 1",
}
"""Metrics of the table, in percent, and their titles."""


def evaluate(
    weights: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="A backbone: insightface's backbone.pth, or safetensors.")
    ],
    backbone: Annotated[str, typer.Option(help="Its architecture, a value of training.backbone.")] = "iresnet100",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A .bin or .parquet of pairs, a folder of IJB or of TinyFace; repeatable, or by commas.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Without --sets: all benchmarks in this folder ($GIF_DATA).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", dir_okay=False, callback=check_out, help="Also write the scores as JSON."),
    ] = None,
) -> None:
    """Score published weights on benchmarks, without training: pairs with and without the mirror, IJB and TinyFace.

    No code in the file of weights is run. A folder is named after its set, as in IJBB, IJB-C, ijbc or tinyface.

    Examples:
      gif evaluate --weights backbone.pth --sets lfw.bin,agedb_30.bin,IJBC

      gif evaluate --weights backbone.pth --backbone iresnet50 --data /benchmarks --out scores.json
    """
    from gif_core.backbones import WeightsError
    from gif_core.evaluation import evaluate_weights, write_weight_scores

    config = _configure(sets, data, device)
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = _finish(evaluate_weights(weights, backbone, config, Path(folder)))
    except WeightsError as error:
        raise GifError(f"{error} (--backbone names the architecture, here {backbone})") from None
    _show(results)
    if out:
        write_weight_scores(out, str(weights), results)
        print(f"scores: {out}")


def _configure(sets: list[str] | None, data: str | None, device: str) -> RunConfig:
    """Settings with the sets that were asked for, or with the benchmarks that are there."""
    table: dict[str, Any] = {"preset": BENCHMARKS, "execution": {"device": device}}
    if sets:
        table["evaluation"] = {"sets": [_describe_set(address) for each in sets for address in each.split(",")]}
    found = leave_out_missing_sets(load_config(table | ({"data": data} if data else {})))
    for given in found.evaluation.sets:
        if files := missing_files(given):
            hint = "" if sets else ": give --sets, or the folder of the benchmarks with --data"
            raise GifError(f"there is no file or folder {files[0][1]}{hint}")
    return found


def _describe_set(address: str) -> dict[str, Any]:
    """Settings of the set at an address, whose name says what it is."""
    name = address.rstrip("/").rpartition("/")[2]
    if address.endswith((".bin", ".parquet")):
        stem, _, ending = name.rpartition(".")
        return {"kind": ending, "path": address, "label": benchmark_of(ending, stem)}
    if found := re.search(r"ijb[-_]?([bc])", name.lower()):
        return {"kind": "ijb", "path": address, "name": f"IJB-{found[1].upper()}"}
    if "tinyface" in name.lower():
        return {"kind": "tinyface", "path": address}
    raise GifError(
        f"{address}: name a .bin or .parquet file of pairs, or a folder whose name says IJBB, IJBC or tinyface"
    )


def _finish(steps: Generator[Progress, None, list[SetResult]]) -> list[SetResult]:
    """Run to the end, showing what is being done."""
    with Console(stderr=True).status("") as status:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                results: list[SetResult] = end.value
                return results
            total = f" of {step.total:,}" if step.total else ""
            status.update(f"{step.activity}: {step.done:,}{total}")


def _show(results: list[SetResult]) -> None:
    """A table of the metrics that any of the sets has."""
    scored = {metric for result in results for system in result.systems.values() for metric in system.metrics}
    shown = {metric: title for metric, title in SHOWN.items() if metric in scored}
    table = Table("set", "features of", *(Column(title, justify="right") for title in shown.values()), title="percent")
    for result in results:
        for name, system in result.systems.items():
            cells = (f"{100 * system.metrics[metric]:.2f}" if metric in system.metrics else "–" for metric in shown)
            flags = ", ".join(flag for flag, on in result.flags.items() if on is True)
            table.add_row(escape(result.title), escape(flags or name), *cells)
        if result.undefined:
            note(f"{result.title}: {result.undefined}")
    Console().print(table)
