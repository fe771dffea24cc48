"""Wrong labels on purpose: how many `gif faces audit` finds, and what its list is worth to a training.

python benchmarks/label_noise.py [--folder noise] [--identities 300] [--flipped 0.1] [--split 0.05] [--mixed 0.05]

Drawn faces go into a Parquet file with wrong labels: a share of the images gets the label of another identity, a share
of the identities is divided into two labels, and a share of the labels has the images of two persons. The encoder and a
model that was trained on these labels audit them. Then the same training runs on the wrong labels, after the encoder's
list, after the model's, and on the right labels, and verifies pairs of other identities, whose labels are right.
Everything is kept in --folder, and found again when the script is started once more.
"""

import argparse
import csv
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.readers import open_reader
from schemas.ingestion import SyntheticSource

SET = "drawn"
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """For every image: the person, the label before images were flipped, and the label in the file."""

    person: Ints
    unflipped: Ints
    label: Ints

    def persons_of(self, label: int) -> set[int]:
        """The persons whom a label is meant for."""
        return set(self.person[self.unflipped == label].tolist())

    @property
    def is_flipped(self) -> NDArray[np.bool_]:
        """Images of persons whom their label is not meant for."""
        return self.label != self.unflipped

    def labels_of_persons(self) -> dict[int, set[int]]:
        """The labels that are meant for each person."""
        found: dict[int, set[int]] = {}
        for person, label in zip(self.person.tolist(), self.unflipped.tolist(), strict=True):
            found.setdefault(person, set()).add(label)
        return found


def spoil(person: Ints, flipped: float, split: float, mixed: float, rng: np.random.Generator) -> Truth:
    """Give wrong labels: divide some identities, join pairs of others, and flip images."""
    count = int(person.max()) + 1
    order, label = rng.permutation(count), person.copy()
    halves, joined = order[: round(split * count)], order[round(split * count) :][: 2 * round(mixed * count)]
    for place, each in enumerate(halves):
        rows = rng.permutation(np.flatnonzero(person == each))
        label[rows[: len(rows) // 2]] = count + place
    for kept, gone in joined.reshape(-1, 2):
        label[person == gone] = kept
    known, unflipped = np.unique(label, return_inverse=True)
    spoilt = unflipped.copy()
    chosen = np.flatnonzero(rng.random(len(person)) < flipped)
    spoilt[chosen] = (unflipped[chosen] + rng.integers(1, len(known), len(chosen))) % len(known)
    return Truth(person, unflipped, spoilt)


def write_sources(folder: Path, given: argparse.Namespace) -> Truth:
    """Write the faces with wrong and with right labels, unless they are there."""
    source = SyntheticSource(identities=given.identities, smallest=6, largest=30, seed=11)
    reader = open_reader(source)
    person = reader.listing.person_R.astype(np.int64)
    truth = spoil(person, given.flipped, given.split, given.mixed, np.random.default_rng([11, 1]))
    if not (folder / "right.parquet").exists():
        images = list(reader.read(np.arange(len(person))))
        for name, labels in (("wrong", truth.label), ("right", truth.person)):
            pq.write_table(pa.table({"image": images, "label": labels}), folder / f"{name}.parquet")
    return truth


def gif(*arguments: str) -> None:
    """Run a command; its output goes to stderr."""
    subprocess.run([sys.executable, "-m", "flows.cli", *arguments], check=True, stdout=sys.stderr)


def train(folder: Path, given: argparse.Namespace, source: str, seed: int, relabel: str = "") -> tuple[float, str]:
    """Accuracy on pairs of other identities after a training, and the key of the model."""
    settings: dict[str, Any] = {
        "preset": "demo",
        "seed": seed,
        "store": str(folder / "store"),
        "execution": {"device": "cpu", "workers": 1},
        "ingestion": {"sources": [{"kind": "parquet", "path": str(folder / f"{source}.parquet")}], "held_out": 0},
        "training": {"epochs": given.epochs, "warmup_steps": 20},
        "evaluation": {
            "sets": [{"kind": "synthetic_bin", "identities": 200, "pairs": 3000, "seed": 5, "label": SET}],
            "systems": ["model"],
        },
    }
    if relabel:
        settings["ingestion"]["relabel"] = str(folder / relabel / "relabel.csv")
    path = folder / f"{source}-{relabel or 'as-it-is'}-{seed}.json"
    path.write_text(json.dumps(settings))
    gif("run", "--config", str(path))
    store = ArtifactStore(settings["store"])
    run = list_runs(store)[0]
    scores = store.open(store.ref("evaluation", run.stages["evaluation"].key)).manifest.metrics
    return float(scores[f"{SET}/accuracy"]), run.stages["training"].key


def rate(right: int, found: int) -> float:
    """A share, with three digits."""
    return round(right / found, 3) if found else math.nan


def measure(truth: Truth, path: Path) -> dict[str, Any]:
    """Precision and recall of a list."""
    with path.open(encoding="utf-8", newline="") as file:
        next(file)
        rows = list(csv.DictReader(file))
    places = np.array([int(row["record"].rpartition("#")[2]) for row in rows], np.int64)
    reason = np.array([row["reason"] for row in rows])
    return measure_images(truth, rows, places, reason) | measure_identities(truth, rows, places, reason)


def measure_images(truth: Truth, rows: list[dict[str, str]], places: Ints, reason: NDArray[Any]) -> dict[str, Any]:
    """Flipped images: found if they are moved or left out; right places of those that are moved."""
    single = np.isin(reason, ["flipped", "stray"])
    anyhow = np.zeros(len(truth.label), bool)
    anyhow[places[reason != "duplicate"]] = True
    moved = [place for place, row in zip(places.tolist(), rows, strict=True) if row["reason"] == "flipped"]
    to = [int(row["new_label"]) for row in rows if row["reason"] == "flipped"]
    home = sum(int(truth.person[place]) in truth.persons_of(label) for place, label in zip(moved, to, strict=True))
    return {
        "flipped_images": int(truth.is_flipped.sum()),
        "flip_precision": rate(int(truth.is_flipped[places[single]].sum()), int(single.sum())),
        "flip_recall": rate(int((anyhow & truth.is_flipped).sum()), int(truth.is_flipped.sum())),
        "moved_images": len(moved),
        "moved_home": rate(home, len(moved)),
    }


def measure_identities(truth: Truth, rows: list[dict[str, str]], places: Ints, reason: NDArray[Any]) -> dict[str, Any]:
    """Identities that are found to hold two persons, and pairs of identities that are found to be one."""
    mixed = {label for label in np.unique(truth.label).tolist() if len(truth.persons_of(label)) > 1}
    found = set(truth.label[places[reason == "mixed"]].tolist())
    pairs = {(int(row["label"]), int(row["new_label"])) for row in rows if row["reason"] == "duplicate"}
    right = [truth.persons_of(a) & truth.persons_of(b) for a, b in pairs]
    divided = [person for person, labels in truth.labels_of_persons().items() if len(labels) > 1]
    return {
        "mixed_identities": len(mixed),
        "mixed_precision": rate(len(found & mixed), len(found)),
        "mixed_recall": rate(len(found & mixed), len(mixed)),
        "divided_persons": len(divided),
        "duplicate_precision": rate(sum(map(bool, right)), len(pairs)),
        "duplicate_recall": rate(len(set().union(*right) & set(divided)), len(divided)),
    }


def difference(values: list[float], before: list[float]) -> str:
    """Mean paired difference in points with its standard error over seeds."""
    points = [100 * (after - first) for after, first in zip(values, before, strict=True)]
    error = stdev(points) / math.sqrt(len(points)) if len(points) > 1 else math.nan
    return f"{mean(points):+.2f} ± {error:.2f}"


def show(accuracy: dict[str, list[float]]) -> None:
    """Print means over the seeds so far, and differences from the training on wrong labels."""
    for name, values in accuracy.items():
        if values:
            change = difference(values, accuracy["wrong labels"])
            print(f"{name}: {100 * mean(values):.2f} % ({change}; {len(values)} seeds)", flush=True)


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("noise"))
    parser.add_argument("--identities", type=int, default=300)
    parser.add_argument("--flipped", type=float, default=0.1)
    parser.add_argument("--split", type=float, default=0.05)
    parser.add_argument("--mixed", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    folder = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    truth = write_sources(folder, given)
    accuracy: dict[str, list[float]] = {
        "wrong labels": [],
        "encoder's list": [],
        "model's list": [],
        "right labels": [],
    }
    first, model = train(folder, given, "wrong", 0)
    store = str(folder / "store")
    gif("faces", "audit", "--store", store, "--output", str(folder / "encoder"), "--encoder")
    gif("faces", "audit", "--store", store, "--output", str(folder / "model"), "--model", f"training/{model}")
    found = {system: measure(truth, folder / system / "relabel.csv") for system in ("encoder", "model")}
    for system, metrics in found.items():
        print(f"{system}: {', '.join(f'{name} {value}' for name, value in metrics.items())}", flush=True)
    for seed in range(given.seeds):
        accuracy["wrong labels"].append(train(folder, given, "wrong", seed)[0] if seed else first)
        accuracy["encoder's list"].append(train(folder, given, "wrong", seed, "encoder")[0])
        accuracy["right labels"].append(train(folder, given, "right", seed)[0])
        show(accuracy)
    for seed in range(given.seeds):
        accuracy["model's list"].append(train(folder, given, "wrong", seed, "model")[0])
    show(accuracy)
    settings = {name: value for name, value in vars(given).items() if name != "folder"}
    print(
        json.dumps({"benchmark": "label_noise", **settings, "images": len(truth.label), **found, "accuracy": accuracy})
    )


if __name__ == "__main__":
    main()
