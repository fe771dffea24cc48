"""Does a setting help training? The whole pipeline for every value of a setting and several seeds.

    python benchmarks/training_ablation.py --vary tokenization.alignment=aligned,none [--seeds 3]
    python benchmarks/training_ablation.py --vary training.gamma=1,3 --vary training.scale=16,8,32 --folder FACES

It uses the faces of the demo, or a folder with images per identity. Settings are changed one at a time. Each seed has
its own code vectors, codes, initial weights and order of images; the held-out identities are always the same. Their
verification accuracy is compared, seed by seed, with that of the setting's first value: a difference is significant if
it exceeds its standard error over the seeds. Runs with equal settings are computed once. With a running Prefect server
(PREFECT_API_URL) the runs do not start their own.

With `--rounds 2` the pipeline runs twice: the second time the network of the first is the encoder.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from gif_core.artifacts import Artifact, ArtifactStore, list_runs

GIF = str(Path(sys.executable).with_name("gif"))


def write_settings(folder: Path, faces: Path | None, epochs: int) -> Path:
    """Return the demo's settings with the given faces and epochs."""
    settings: dict[str, object] = {"preset": "demo", "store": str(folder / "store"), "training": {"epochs": epochs}}
    settings["evaluation"] = {"sets": [{"kind": "held_out"}]}
    if faces:
        settings["ingestion"] = {"sources": [{"kind": "folder", "path": str(faces.resolve())}], "held_out": 0.2}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def accuracy(folder: Path, settings: Path, overrides: list[str], rounds: int) -> float:
    """Return the accuracy of the last round's model on held-out identities."""
    store, encoder = ArtifactStore(str(folder / "store")), list[str]()
    for _ in range(rounds):
        changes = [part for override in [*overrides, *encoder] for part in ("--set", override)]
        subprocess.run([GIF, "run", "--config", str(settings), *changes], check=True, stdout=subprocess.DEVNULL)
        stages = list_runs(store)[0].stages
        encoder = use_as_encoder(store.open(store.ref("training", stages["training"].key)))
    scores = store.open(store.ref("evaluation", stages["evaluation"].key))
    return float(scores.manifest.metrics["model_accuracy"])


def use_as_encoder(model: Artifact) -> list[str]:
    """Return the settings that use a trained network as the encoder."""
    name, weights = model.manifest.settings["backbone"], model.path("backbone.safetensors")
    return ["embedding.encoder=backbone", f"embedding.model={name}", f"embedding.pretrained={weights}"]


def split(vary: str) -> list[str]:
    """Expand `name=a,b` to `name=a` and `name=b`."""
    name, _, values = vary.partition("=")
    return [f"{name}={value}" for value in values.split(",")]


def compare(found: list[float], first: list[float]) -> dict[str, float]:
    """Return mean and standard deviation, and the mean difference to the first value with its standard error, in %."""
    difference = np.subtract(found, first)
    error = difference.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
    metrics = {"mean": np.mean(found), "std": spread, "difference": difference.mean(), "standard_error": error}
    return {name: round(100 * float(metric), 2) for name, metric in metrics.items()}


def main() -> None:
    """Run everything and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--vary", action="append", required=True, metavar="STAGE.FIELD=A,B", help="a setting and its values; repeatable"
    )
    parser.add_argument("--folder", type=Path, help="a folder with images per identity; default: the demo's faces")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1, help="trainings, each on the features of the one before")
    parser.add_argument("--set", action="append", default=[], metavar="STAGE.FIELD=VALUE", help="for all runs")
    given = parser.parse_args()
    choices = [split(vary) for vary in given.vary]
    found: dict[str, list[float]] = {choice: [] for values in choices for choice in values}
    with tempfile.TemporaryDirectory() as temporary:
        settings = write_settings(Path(temporary), given.folder, given.epochs)
        for seed in range(given.seeds):
            for choice in found:
                overrides = [*given.set, choice, f"seed={seed}"]
                found[choice].append(accuracy(Path(temporary), settings, overrides, given.rounds))
                print(f"seed {seed}, {choice}: {100 * found[choice][-1]:.2f} %", flush=True)
    metrics = {choice: compare(found[choice], found[values[0]]) for values in choices for choice in values}
    for choice, row in metrics.items():
        summary = "{mean:.2f} ± {std:.2f} %, difference {difference:+.2f} ± {standard_error:.2f}".format(**row)
        print(f"{choice}: {summary}")
    print(json.dumps({"benchmark": "training_ablation", "seeds": given.seeds, "metrics": metrics}))


if __name__ == "__main__":
    main()
