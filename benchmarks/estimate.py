"""What `gif estimate` predicts against a run of that size, stage by stage.

python benchmarks/estimate.py [--identities 8000] [--seconds 6] [--folder F --measure | --folder F]

The parts of the pipeline are measured as `gif bench` does, the run is estimated from these figures, and then made with
`gif run` on drawn faces, of a size at which most stages take ten seconds and more. All three follow each other on one
machine, which has to be idle. With `--folder` they may also be two calls: the first, with `--measure`, keeps the
figures there, and the second makes the run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from gif_core.artifacts import ArtifactStore, list_runs
from gif_core.benchmarking import keep_result, run_benchmark
from gif_core.estimation import describe_machine, estimate_run, find_scale
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import STAGES

GIF = str(Path(sys.executable).with_name("gif"))
MEASURED = ("ingest", "embed", "separate", "tokenize", "train", "evaluate", "start")
CLOSE = 1.25
"""Largest ratio of prediction and run, either way, that counts as close."""


def write_config(folder: Path, given: argparse.Namespace) -> Path:
    """Write the run: separation takes a fixed number of epochs, since its length cannot be predicted."""
    settings = {
        "preset": "demo",
        "store": str(folder / "store"),
        "ingestion": {
            "sources": [{"kind": "synthetic", "identities": given.identities, "smallest": 2, "largest": 6}],
            "held_out": 0.3,
        },
        "separation": {"epochs": 40, "target_gap": None},
        "training": {"epochs": 1, "warmup_steps": 0},
        "evaluation": {"sets": [{"kind": "held_out"}], "pairs": 4000},
        "execution": {"device": "cpu"},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def keep_figures(config: RunConfig, seconds: float) -> None:
    """Measure this machine."""
    for name in MEASURED:
        print(f"measuring {name}", flush=True)
        keep_result(run_benchmark(name, config, device="cpu", seconds=seconds, command=(GIF,)))


def predict(config: RunConfig) -> dict[str, float]:
    """The predicted seconds of every stage, from the figures of this machine."""
    found = estimate_run(config, find_scale(config), describe_machine(gpus=0))
    return {cost.stage: cost.seconds for cost in found.stages}


def measure(path: Path, config: RunConfig) -> dict[str, float]:
    """Run the pipeline and return the seconds of every stage."""
    subprocess.run([GIF, "run", "--config", str(path)], check=True, stdout=subprocess.DEVNULL)
    return {stage: done.seconds for stage, done in list_runs(ArtifactStore(config.store))[0].stages.items()}


def compare(predicted: dict[str, float], measured: dict[str, float]) -> dict[str, Any]:
    """Print both and return the ratios."""
    ratios = {stage: predicted[stage] / measured[stage] for stage in STAGES}
    print(f"{'stage':14} {'predicted':>10} {'run':>10} {'ratio':>7}")
    for stage, ratio in ratios.items():
        print(f"{stage:14} {predicted[stage]:8.1f} s {measured[stage]:8.1f} s {ratio:7.2f}")
    close = [stage for stage, ratio in ratios.items() if 1 / CLOSE <= ratio <= CLOSE]
    print(f"within 25 %: {', '.join(close) or 'none'}")
    return {"ratios": {stage: round(ratio, 3) for stage, ratio in ratios.items()}, "close": close}


def work(folder: Path, given: argparse.Namespace) -> None:
    """Measure, estimate, run and compare, as far as is asked for; the last line is JSON."""
    os.environ["GIF_CACHE"] = str(folder / "cache")
    path = write_config(folder, given)
    config = load_config(str(path))
    if given.measure or not given.folder:
        keep_figures(config, given.seconds)
    if given.measure:
        return
    metrics, load = compare(predict(config), measure(path, config)), os.getloadavg()[0]
    asked = {"identities": given.identities, "seconds": given.seconds}
    print(json.dumps({"benchmark": "estimate", **asked, "cores": os.cpu_count(), "load": load, **metrics}))


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--folder", type=Path, help="keeps figures and run")
    parser.add_argument("--measure", action="store_true", help="only measure, into --folder")
    given = parser.parse_args()
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        work(given.folder, given)
        return
    with tempfile.TemporaryDirectory() as name:
        work(Path(name), given)


if __name__ == "__main__":
    main()
