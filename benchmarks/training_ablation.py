"""Does a setting help training? The whole pipeline for every value of a setting and several seeds.

    python benchmarks/training_ablation.py --vary tokenization.alignment=aligned,none [--seeds 3]
    python benchmarks/training_ablation.py --vary tokenization.mode=structured,atomic --folder path/to/faces

On the faces of the demo, or on a folder of images per person. Each seed draws its own code vectors, codes, first
weights and order of images; the people kept aside are always the same. What is compared is the accuracy of verifying
them, seed by seed: a difference counts when it is larger than its standard error over the seeds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from gif_core.artifacts import ArtifactStore
from gif_core.artifacts.runs import list_runs

GIF = str(Path(sys.executable).with_name("gif"))


def write_settings(folder: Path, faces: Path | None, epochs: int) -> Path:
    """The demo's settings, with other faces and as many epochs as asked for."""
    settings: dict[str, object] = {"preset": "demo", "store": str(folder / "store"), "training": {"epochs": epochs}}
    settings["evaluation"] = {"sets": [{"kind": "held_out"}]}
    if faces:
        settings["ingestion"] = {"sources": [{"kind": "folder", "path": str(faces.resolve())}], "held_out": 0.2}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def accuracy(folder: Path, settings: Path, overrides: list[str]) -> float:
    """Of the model, on the people kept aside."""
    changes = [part for override in overrides for part in ("--set", override)]
    subprocess.run([GIF, "run", "--config", str(settings), *changes], check=True, stdout=subprocess.DEVNULL)
    store = ArtifactStore(str(folder / "store"))
    stages = list_runs(store)[0].stages
    scores = store.open(store.ref("evaluation", stages["evaluation"].key))
    return float(scores.manifest.metrics["model_accuracy"])


def compare(by_value: dict[str, list[float]], first: str) -> dict[str, dict[str, float]]:
    """Mean, spread, and the mean difference from the first value with its standard error."""
    figures = {}
    for value, found in by_value.items():
        difference = np.subtract(found, by_value[first])
        error = difference.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
        figures[value] = {
            "mean": round(float(np.mean(found)), 4),
            "std": round(float(np.std(found, ddof=1)), 4) if len(found) > 1 else 0.0,
            "difference": round(float(difference.mean()), 4),
            "standard_error": round(float(error), 4),
        }
    return figures


def main() -> None:
    """Run everything and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vary", required=True, metavar="STAGE.FIELD=A,B", help="a setting and its values")
    parser.add_argument("--folder", type=Path, help="a folder of images per person; without it the demo's faces")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--set", action="append", default=[], metavar="STAGE.FIELD=VALUE", help="for all runs")
    given = parser.parse_args()
    name, _, values = given.vary.partition("=")
    by_value: dict[str, list[float]] = {value: [] for value in values.split(",")}
    with tempfile.TemporaryDirectory() as temporary:
        settings = write_settings(Path(temporary), given.folder, given.epochs)
        for seed in range(given.seeds):
            for value, found in by_value.items():
                overrides = [*given.set, f"{name}={value}", f"seed={seed}"]
                found.append(accuracy(Path(temporary), settings, overrides))
                print(f"seed {seed}, {name}={value}: {100 * found[-1]:.2f} %", flush=True)
    figures = compare(by_value, next(iter(by_value)))
    for value, row in figures.items():
        print(f"{value}: {100 * row['mean']:.2f} %, difference {100 * row['difference']:+.2f} % points")
    print(json.dumps({"benchmark": "training_ablation", "setting": name, "seeds": given.seeds, "figures": figures}))


if __name__ == "__main__":
    main()
