"""Sections "Scores", "Published" and "Worst errors": metrics of every set, beside published ones, and its errors."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from gif_core.artifacts import Artifact
from gif_core.protocols import read_groups, read_identification, read_scores
from gif_core.reporting import plots
from gif_core.reporting.published import BENCHMARKS, PUBLISHED, benchmark_of, training_set_of
from gif_core.reporting.sections.inputs import Inputs, Shown, count_identities, describe_encoder, read_curves
from gif_core.runtime import decimal, flag_words, metric_name, percent, plain_name, set_name, thousands
from schemas.files import CMC_FILE, ERRORS_FILE, ROC_FILE, SCORES_FILE
from schemas.run import RunConfig

KINDS: Final = {
    "held_out": "Pairs of held-out identities, which neither the codes nor the model were trained on",
    "bin": "Pairs of a .bin file",
    "lfw": "Pairs of a pairs.txt (LFW)",
    "parquet": "Pairs of a Parquet table",
    "ijb": "Templates of IJB, 1:1 and, where there are galleries, 1:N",
    "tinyface": "Probes of TinyFace, searched in its gallery with distractors, 1:N",
    "synthetic_bin": "Pairs of synthetic identities that occur in no other data",
    "synthetic_ijb": "Templates of synthetic identities that occur in no other data, in the format of IJB-C",
}
COUNTED: Final = {"same": "of them of one identity"}
TEMPLATES: Final = ("ijb", "synthetic_ijb")
HEADLINES: Final = ("accuracy", "tar_at_far_0.0001", "rank_1")


def show_scores(config: RunConfig, inputs: Inputs) -> Shown:
    """Show every set with its protocol, flags and metrics, or the reason why it has none."""
    evaluation = inputs["evaluation"]
    notes = {"encoder": describe_encoder(config), "model": f"{config.training.backbone}, head {config.training.head}"}
    sets = _read_sets(evaluation)
    return {
        "sets": [_show_set(evaluation, title, found) for title, found in sets.items()],
        "notes": notes,
        "identification": _show_identification(evaluation),
        "groups": [_show_groups(name, found) for name, found in _read_groups(evaluation).items()],
    }


def show_published(config: RunConfig, inputs: Inputs) -> Shown:
    """Show this run's metrics on public benchmarks above those of the paper and its peers."""
    identities = [count_identities(inputs["ingestion"], split)["identities"] for split in ("identities", "held_out")]
    trained_on = training_set_of(identities[0]) or training_set_of(sum(identities))
    own = _benchmark_metrics(inputs["evaluation"])
    rows = [{"about": row, "cells": _cells(row.by_benchmark())} for row in PUBLISHED]
    return {
        "benchmarks": BENCHMARKS,
        "own": _cells(own) if own else None,
        "backbone": config.training.backbone,
        "head": config.training.head,
        "trained_on": trained_on,
        "identities": identities[0],
        "rows": rows,
    }


def show_errors(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the most confident false matches and misses of each set, with both images of a pair."""
    table = pq.read_table(inputs["evaluation"].path(ERRORS_FILE))
    groups = []
    for title in table["set"].unique().to_pylist():
        rows = table.filter(pc.equal(table["set"], title)).to_pylist()
        kinds = {False: "False matches", True: "Misses"}
        shown = {words: [_show_error(row) for row in rows if row["same"] is same] for same, words in kinds.items()}
        groups.append({"title": set_name(title), "threshold": rows[0]["threshold"], "kinds": shown})
    sets = _read_sets(inputs["evaluation"]).values()
    return {
        "groups": groups,
        "pairs": any("accuracy" in found["systems"].get("model", {}) for found in sets),
        "templates": any(found["kind"] in TEMPLATES for found in sets),
    }


def headline_scores(evaluation: Artifact) -> Iterator[tuple[str, str, float]]:
    """Yield set, metric and value of the model's main metric on each set."""
    for title, found in _read_sets(evaluation).items():
        scores = found["systems"].get("model", {})
        for metric in HEADLINES:
            if metric in scores:
                yield set_name(title), metric_name(metric), scores[metric]
                break


def _show_set(evaluation: Artifact, title: str, found: Mapping[str, Any]) -> Shown:
    counts = {name: value for name, value in found.items() if isinstance(value, int) and not isinstance(value, bool)}
    shown = {
        "title": set_name(title),
        "about": KINDS.get(found["kind"], plain_name(found["kind"])),
        "protocol": found["protocol"],
        "flags": flag_words(found["flags"]),
        "own_flags": {system: ", ".join(flag_words(own)) for system, own in found.get("system_flags", {}).items()},
        "counts": [f"{thousands(value)} {COUNTED.get(name, name)}" for name, value in counts.items()],
        "undefined": found.get("undefined"),
        "tables": list(_tables(found["systems"])),
    }
    return shown | {"roc": _draw_roc(evaluation, title), "cmc": _draw_cmc(evaluation, title)}


def _show_groups(name: str, found: Mapping[str, Any]) -> Shown:
    """Show what the groups of a benchmark have together, and each of them."""
    return {
        "title": name,
        "common_fmr": found["flags"]["common_fmr"],
        "systems": found["systems"],
        "titles": list(next(iter(found["systems"].values()), {"groups": {}})["groups"]),
    }


def _tables(systems: Mapping[str, Mapping[str, float]]) -> Iterator[Shown]:
    """Yield a table of verification and a table of identification, each only if it has metrics."""
    names = list(dict.fromkeys(name for scores in systems.values() for name in scores if not name.endswith("_std")))
    ranked = [name for name in names if name.startswith(("tpir", "fnir", "rank"))]
    for caption, columns in (("", [name for name in names if name not in ranked]), ("1:N", ranked)):
        rows = {system: [_write_metric(scores, name) for name in columns] for system, scores in systems.items()}
        if columns:
            yield {"caption": caption, "columns": [metric_name(name) for name in columns], "rows": rows}


def _write_metric(scores: Mapping[str, float], name: str) -> str:
    if name not in scores:
        return "–"
    if name == "threshold":
        return decimal(scores[name], 2)
    spread = scores.get(f"{name}_std")
    return percent(scores[name]) + (f" ± {percent(spread)}" if spread is not None else "")


def _draw_roc(evaluation: Artifact, title: str) -> Any:
    curves = read_curves(evaluation.path(ROC_FILE), "system", "far", "tar", [("set", "=", title)])
    return plots.draw_roc({plain_name(system): curve for system, curve in curves.items()}) if curves else None


def _draw_cmc(evaluation: Artifact, title: str) -> Any:
    curves = read_curves(evaluation.path(CMC_FILE), "system", "rank", "share", [("set", "=", title)])
    return plots.draw_cmc({plain_name(system): curve for system, curve in curves.items()}) if curves else None


def _show_error(row: Mapping[str, Any]) -> Shown:
    images = [f"data:image/jpeg;base64,{base64.b64encode(row[f'{side}_image']).decode()}" for side in ("left", "right")]
    return {"images": images, "distance": row["distance"], "rows": (row["left"], row["right"])}


def _show_identification(evaluation: Artifact) -> Shown | None:
    """Show the metrics of each identification method; None if identification was not measured."""
    found = read_identification(evaluation)
    if found is None:
        return None
    methods = found["systems"]
    names = [name for name in next(iter(methods.values()), {}) if name.startswith(("rank_", "fnir_"))]
    return {
        "names": [metric_name(name) for name in names],
        "rows": {method: [percent(metrics[name]) for name in names] for method, metrics in methods.items()},
        "about": found,
        "undefined": found.get("undefined"),
    }


def _benchmark_metrics(evaluation: Artifact) -> dict[str, float]:
    """Return the model's metrics by public benchmark; of several sets of one benchmark the first counts."""
    own: dict[str, float] = {}
    for title, found in _read_sets(evaluation).items():
        benchmark = benchmark_of(found["kind"], title)
        scores = found["systems"].get("model", {})
        value = scores.get("tar_at_far_0.0001" if str(benchmark).startswith("IJB") else "accuracy")
        if benchmark and value is not None:
            own.setdefault(benchmark, value)
    return own


def _cells(shares: Mapping[str, float]) -> list[str]:
    return [percent(shares[name]) if name in shares else "–" for name in BENCHMARKS]


def _read_groups(evaluation: Artifact) -> dict[str, Mapping[str, Any]]:
    return read_groups(evaluation.path(SCORES_FILE))


def _read_sets(evaluation: Artifact) -> dict[str, Mapping[str, Any]]:
    return read_scores(evaluation.path(SCORES_FILE))
