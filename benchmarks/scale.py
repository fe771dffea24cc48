"""Does the head on identity codes match margin softmax where the identities of a step are few among many?

    python benchmarks/scale.py vectors --identities 100000 --seeds 3 --heads gif cosface cosface_from_h partial_fc
    python benchmarks/scale.py drawn --identities 10000 --seeds 5 --heads gif cosface partial_fc
    python benchmarks/scale.py photographs --faces FOLDER --encoder tiny-clip --seeds 5 --heads gif cosface
    python benchmarks/scale.py vectors --identities 10000 --heads gif --set gif.negatives=64,256,1024 --plot scale.svg
    python benchmarks/scale.py vectors --heads gif gif+row_adam gif+log_q gif+tree gif+retokenize

Every head trains the same network on the same images in the same order for as many steps, and is verified on all pairs
of images of identities it has not seen. `--set HEAD.SETTING=A,B` adds variants of a head; to choose settings, use
another `--split` than for the figures that are reported: it decides which identities are held out. `gif+VARIANT` is a
head with one thing changed (`head_variants.py`). `--encoder own` takes code vectors from a face network that was
trained on the same identities. Differences to the first head are paired by seed; their standard errors are over the
seeds and, by a bootstrap, over the held-out identities. Finished trainings are kept in `--folder`, so that a stopped
benchmark goes on where it was.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch
from pair_histograms import PairHistograms, count_pairs, draw_weights, measure
from scale_plot import draw_quality
from worlds import (
    SIDE,
    FaceWorld,
    Split,
    VectorWorld,
    World,
    draw_faces,
    encode,
    encode_by_own_network,
    hold_out,
    part_of,
    read_folder,
    shrink,
    split_world,
)

from schemas.embedding import EmbeddingConfig
from schemas.training import TrainingConfig

FARS = (1e-2, 1e-3, 1e-4)
COMMON = {
    "vectors": {"optimizer": "adamw", "learning_rate": 1e-2, "weight_decay": 1e-4, "batch_size": 512, "epochs": 6},
    "drawn": {"optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 0.05, "batch_size": 128, "epochs": 4},
    "photographs": {"optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 0.05, "batch_size": 32, "epochs": 6},
}
"""Settings that all heads share."""
HEADS: dict[str, dict[str, object]] = {
    "gif": {},
    "mapped": {"code_vectors": "mapped"},
    "frozen": {"code_vectors": "frozen"},
    "paper": {"negatives": 0},
    "cosface": {"head": "cosface"},
    "cosface_from_h": {"head": "cosface", "rows_from": "code_vectors"},
    "partial_fc": {"head": "partial_fc", "sample_rate": 0.1},
}
"""Settings of each head."""
ENCODERS = {
    "tiny-clip": {"model": "tiny-clip", "pretrained": "synthetic"},
    "imagenet": {"encoder": "timm", "model": "tf_efficientnet_lite0"},
    "own": {},
}
OWN = {"head": "cosface", "scale": 16, "margin": 0.2, "epochs": 12}
"""Settings of the network whose features are the encoder `own`."""


def open_world(given: argparse.Namespace) -> World:
    """Return the data, which is drawn or encoded once."""
    if given.world == "vectors":
        return VectorWorld(given.identities + given.held_out, given.images, knows=given.knows)
    if given.world == "drawn":
        people = given.identities + given.held_out
        name = f"drawn-{people}-{given.images}"
        images, labels = draw_faces(people, given.images, given.folder / f"{name}.npy")
    else:
        name = f"photographs-{given.faces.name}"
        images, labels = read_folder(given.faces, given.folder / f"{name}.npy")
    small = shrink(images, given.side, given.folder / f"{name}-side-{given.side}.npy")
    if given.encoder == "own":
        config = TrainingConfig.model_validate(COMMON[given.world] | {"backbone": "iresnet_tiny"} | OWN)
        train, _ = hold_out(labels, given.held_out, given.split)
        cache = given.folder / f"{name}-own-{given.split}.npy"
        return FaceWorld(small, labels, encode_by_own_network(images, labels, train, config, cache))
    settings = ENCODERS[given.encoder] | ({"pretrained": str(given.weights)} if given.weights else {})
    config = EmbeddingConfig.model_validate(settings)
    return FaceWorld(small, labels, encode(images, config, given.folder / f"{name}-{given.encoder}.npy"))


def choose_heads(given: argparse.Namespace) -> dict[str, TrainingConfig]:
    """Return the settings of every head, and of its variants."""
    common = COMMON[given.world] | {"backbone": "iresnet_tiny"} | ({"epochs": given.epochs} if given.epochs else {})
    settings = {name: common | HEADS[name.partition("+")[0]] | given.every for name in given.heads}
    for text in given.set:
        place, _, values = text.partition("=")
        head, _, field = place.partition(".")
        for base in [name for name in settings if name.split()[0] == head]:
            for value in values.split(","):
                settings[f"{base} {field}={value}"] = settings[base] | {field: parse(value)}
            del settings[base]
    return {name: TrainingConfig.model_validate(each) for name, each in settings.items()}


def parse(value: str) -> object:
    """Read a number, or leave a word as it is."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def describe(given: argparse.Namespace) -> str:
    """Return a name of the data and of the identities that are held out."""
    parts = [given.world, given.identities, given.images, given.held_out, given.split]
    parts += [given.knows] if given.world == "vectors" else [given.encoder]
    parts += [given.faces.name] if given.world == "photographs" else []
    return "-".join(map(str, parts))


def train(
    given: argparse.Namespace, world: World, split: Split, config: TrainingConfig, seed: int, variant: str
) -> PairHistograms:
    """Train once, or read what an earlier run has kept."""
    uses_h = config.head == "gif" or config.rows_from == "code_vectors"
    encoder = [given.encoder, given.knows] if uses_h else []
    data = [given.world, given.identities, given.images, given.held_out, given.split, str(given.faces), *encoder]
    data += [variant] if variant else []
    data += [f"side {given.side}"] if given.side != SIDE else []
    key = hashlib.sha256(json.dumps([data, seed, config.model_dump(mode="json")]).encode()).hexdigest()[:20]
    path = given.folder / "runs" / f"{key}.npz"
    if not path.exists():
        started = time.perf_counter()
        found = count_pairs(world.train(split, config, seed, variant), split.test_labels)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = part_of(path)
        seconds = time.perf_counter() - started
        np.savez_compressed(part, genuine=found.genuine_PC, impostor=found.impostor_PC, seconds=seconds)
        part.rename(path)
    stored = np.load(path)
    return PairHistograms(stored["genuine"], stored["impostor"])


def compare(found: dict[str, list[PairHistograms]]) -> dict[str, dict[str, list[float]]]:
    """Return for each head the mean metrics in %, and the differences to the first with their standard errors."""
    first = next(iter(found.values()))
    weights = draw_weights(len(first[0].genuine_PC))
    values = {name: np.stack([100 * measure(each, FARS, weights) for each in many]) for name, many in found.items()}
    base, results = next(iter(values.values())), {}
    for name, metrics in values.items():
        seeds = min(len(metrics), len(base))
        differences = metrics[:seeds] - base[:seeds]
        over_seeds = differences[:, 0].std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.zeros(1 + len(FARS))
        over_people = differences[:, 1:].mean(axis=0).std(axis=0)
        rows = (metrics[:, 0].mean(axis=0), differences[:, 0].mean(axis=0), over_seeds, over_people)
        names = ("mean", "difference", "error_over_seeds", "error_over_identities")
        results[name] = {key: np.round(row, 2).tolist() for key, row in zip(names, rows, strict=True)}
    return results


def curves(
    results: dict[str, dict[str, list[float]]], heads: dict[str, TrainingConfig], identities: int
) -> dict[str, list[tuple[float, float]]]:
    """TAR at FAR 1e-3 against the rows of a step, by head."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, row in results.items():
        found.setdefault(name.split()[0], []).append((rows_of_step(heads[name], identities), row["mean"][2]))
    return {name: sorted(points) for name, points in found.items()}


def rows_of_step(config: TrainingConfig, identities: int) -> float:
    """How many rows a step uses: the images of a batch are taken to be of different identities."""
    if config.head == "gif":
        others = 1 - min(1.0, config.negatives / identities)
        return min(identities, config.negatives + config.batch_size * others)
    if config.head == "partial_fc":
        return max(identities * config.sample_rate_of_head, min(identities, config.batch_size))
    return identities


def tell(results: dict[str, dict[str, list[float]]]) -> None:
    """Print a table."""
    width = max(map(len, results))
    titles = ["accuracy", *(f"TAR@{far:g}" for far in FARS)]
    print("\n" + " " * width + "".join(f"{title:>26}" for title in titles))
    for name, row in results.items():
        cells = zip(row["mean"], row["difference"], row["error_over_seeds"], row["error_over_identities"], strict=True)
        print(f"{name:{width}}" + "".join(f"{m:9.2f} {d:+6.2f} ±{s:4.2f} ±{p:4.2f}" for m, d, s, p in cells))
    print("mean, difference to the first head, its standard error over seeds, and over held-out identities")


def read_arguments() -> argparse.Namespace:
    """Return what was asked for; with photographs a folder of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=COMMON)
    parser.add_argument("--heads", nargs="+", default=list(HEADS), help=f"of {', '.join(HEADS)}; gif+VARIANT")
    parser.add_argument(
        "--identities", type=int, default=10_000, help="to train on; photographs: all but those held out"
    )
    parser.add_argument("--images", type=int, default=6, help="of each identity")
    parser.add_argument("--held-out", type=int, default=0, help="identities to verify; 0: 1500, of photographs 60")
    parser.add_argument("--side", type=int, default=SIDE, help="pixels of a face's side for the network")
    parser.add_argument("--split", type=int, default=0, help="which identities are held out")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--every", type=json.loads, default={}, help="settings of every head, as JSON")
    parser.add_argument("--set", action="append", default=[], metavar="HEAD.SETTING=A,B")
    parser.add_argument("--faces", type=Path, help="a folder with images per identity")
    parser.add_argument("--encoder", choices=ENCODERS, default="tiny-clip")
    parser.add_argument("--knows", type=float, default=0.0, help="how well the encoder of vectors knows identities")
    parser.add_argument("--weights", type=Path, help="file of the encoder's weights")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, default=Path("scale-runs"), help="for data and finished trainings")
    parser.add_argument("--plot", type=Path, help="picture of TAR at FAR 1e-3 against the rows of a step")
    given = parser.parse_args()
    unknown = [name for name in given.heads if name.partition("+")[0] not in HEADS]
    if unknown:
        parser.error(f"no such heads: {', '.join(unknown)}; there are {', '.join(HEADS)}")
    if given.world == "photographs" and not (given.faces and given.faces.is_dir()):
        parser.error("photographs need --faces: a folder with a folder of images per identity")
    given.held_out = given.held_out or (60 if given.world == "photographs" else 1500)
    return given


def main() -> None:
    """Train, compare, and end with one line of JSON."""
    given = read_arguments()
    torch.set_num_threads(given.threads)
    given.folder.mkdir(parents=True, exist_ok=True)
    world = open_world(given)
    split = split_world(world, given.held_out, given.split, given.folder / f"split-{describe(given)}.npz")
    heads = choose_heads(given)
    own = count_pairs(torch.from_numpy(world.encoded[split.test]), split.test_labels)
    print("encoder:", np.round(100 * measure(own, FARS, np.ones((1, given.held_out)))[0], 2).tolist(), flush=True)
    found: dict[str, list[PairHistograms]] = {name: [] for name in heads}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name, config in heads.items():
            started = time.perf_counter()
            found[name].append(train(given, world, split, config, seed, name.split()[0].partition("+")[2]))
            metrics = 100 * measure(found[name][-1], FARS, np.ones((1, given.held_out)))[0]
            seconds = time.perf_counter() - started
            print(f"seed {seed}, {name}: {np.round(metrics, 2).tolist()} in {seconds:.0f} s", flush=True)
    results = compare(found)
    tell(results)
    if given.plot:
        given.plot.write_text(draw_quality(curves(results, heads, len(split.vectors)), "TAR at FAR 0.1 %"))
    settings = {"world": given.world, "identities": int(split.labels.max()) + 1, "seeds": given.seeds}
    print(json.dumps({"benchmark": "scale", **settings, "fars": FARS, "metrics": results}))


if __name__ == "__main__":
    main()
