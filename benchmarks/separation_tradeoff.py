"""How much neighbourhood structure is left when separation reaches a gap of 0.01, by several methods.

    python benchmarks/separation_tradeoff.py [--data faces drawn cone] [--identities 2000] [--cone 20000]
        [--all] [--with "plain descent of all rows"]

faces: photographs in a folder per identity (--folder), encoded by tiny-clip. drawn: synthetic identities, six images
each, encoded by tiny-clip. cone: simulated clusters in a narrow cone, 512 dimensions. --vectors FILE.npy: your own
rows. Structure is measured by the 10 and 50 nearest neighbours kept and by Spearman's rank correlation of similarities;
`products` is the number of matrix products of m x m x d (two per epoch, three when all rows move). --all adds methods
that were tried and rejected, and the literal recipe, which is stopped after 1000 epochs.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from gif_core.runtime import ShardedRows, unit_rows
from gif_core.separation import (
    Neighbourhoods,
    centre,
    equalise,
    mean_potential,
    neighbours_kept,
    separated,
    separation_scores,
    tangent,
    uniform_limit,
)
from schemas.separation import SeparationConfig

TEMPERATURE, GAP = 2.0, 0.01
MEASURED = 4096
PLAIN = {"start_gap": None, "pull": 0.0}


@dataclass(frozen=True)
class Result:
    """The separated vectors and their cost."""

    vectors_ND: Tensor
    epochs: int
    products: int


Way = Callable[[Tensor], Result]


def descent(**given: object) -> Way:
    """Run the stage itself with other settings."""

    def run(vectors_ND: Tensor) -> Result:
        config = SeparationConfig.model_validate({"batch_size": 2048, **given})
        after_ND, steps = separated(vectors_ND, config, seed=0)
        epochs = steps[-1].epoch
        closed = config.start_gap is not None and config.recipe != "literal"
        search = int(config.pull > 0 and config.recipe != "literal")
        return Result(after_ND, epochs, 2 * (epochs - closed) + search)

    return run


def closed_form(vectors_ND: Tensor) -> Result:
    """Equalise the spectrum alone, until the gap is reached."""
    rows = ShardedRows(vectors_ND.clone())
    equalise(rows, sample_of(vectors_ND), temperature=TEMPERATURE, gap=0.98 * GAP)
    return Result(rows.local, 0, 0)


def power(vectors_ND: Tensor) -> Result:
    """Raise the singular values of the centred vectors to the largest power that reaches the gap."""
    rows = ShardedRows(vectors_ND.clone())
    centre(rows)
    left, values, right = torch.linalg.svd(rows.local, full_matrices=False)
    low, high, best = 0.0, 1.0, rows.local
    for _ in range(10):
        middle = (low + high) / 2
        made = ShardedRows(unit_rows(left * values**middle @ right))
        centre(made)
        if gap_of(made.local) <= GAP:
            low, best = middle, made.local
        else:
            high = middle
    return Result(best, 0, 0)


def centred(vectors_ND: Tensor) -> Result:
    """Remove the mean, then run plain descent."""
    rows = ShardedRows(vectors_ND.clone())
    centre(rows)
    return descent(**PLAIN)(rows.local)


def annealed(vectors_ND: Tensor) -> Result:
    """Run plain descent with a temperature that falls from 8 to 2."""
    vectors_ND, epochs = vectors_ND.clone(), 0
    for temperature in (8.0, 5.0, 3.0, TEMPERATURE):
        given = {**PLAIN, "temperature": temperature, "epochs": 1000 if temperature == TEMPERATURE else 15}
        part = descent(**given)(vectors_ND)
        vectors_ND, epochs = part.vectors_ND, epochs + part.epochs
    return Result(vectors_ND, epochs, 2 * epochs)


def all_rows_move(vectors_ND: Tensor) -> Result:
    """Run descent in which the rows outside the batch move too: three products per step."""
    vectors_ND, rng, epochs = vectors_ND.clone(), np.random.default_rng(0), 0
    while gap_of(vectors_ND) > GAP and epochs < 1000:
        epochs += 1
        for batch_B in torch.from_numpy(rng.permutation(len(vectors_ND))).split(2048):
            vectors_ND = move_all(vectors_ND, batch_B)
    return Result(vectors_ND, epochs, 3 * epochs)


def move_all(vectors_ND: Tensor, batch_B: Tensor) -> Tensor:
    """Move every row down the gradient of the batch's loss, with the step length per pair of the stage."""
    batch_BD = vectors_ND[batch_B]
    potential_BN = torch.exp(2 * TEMPERATURE * (batch_BD @ vectors_ND.T - 1))
    potential_BN[torch.arange(len(batch_B)), batch_B] = 0
    force_ND = potential_BN.T @ batch_BD
    force_ND[batch_B] += potential_BN @ vectors_ND
    force_ND *= 2 * TEMPERATURE * len(batch_B) / potential_BN.sum()
    return torch.nn.functional.normalize(vectors_ND - 0.1 * tangent(force_ND, vectors_ND), dim=1)


DEFAULT = "default: closed form to 0.1, then descent with pull"
WAYS: dict[str, Way] = {
    "plain descent": descent(**PLAIN),
    DEFAULT: descent(),
    "closed form alone": closed_form,
}
TRIED: dict[str, Way] = {
    "mean removed, then plain descent": centred,
    "temperature 8 → 2, plain descent": annealed,
    "singular values to a power": power,
    "closed form to 0.1, then plain descent": descent(pull=0.0),
    "descent with pull": descent(start_gap=None),
    "default with pull 1": descent(pull=1.0),
    "plain descent of all rows": all_rows_move,
    "plain descent, learning rate 0.2": descent(**PLAIN, learning_rate=0.2),
    "literal recipe": descent(recipe="literal", **PLAIN),
}


def gap_of(vectors_ND: Tensor) -> float:
    """Return the gap of the loss to its limit, on the first rows."""
    return mean_potential(vectors_ND[:MEASURED], TEMPERATURE) - uniform_limit(vectors_ND.shape[1], TEMPERATURE)


def sample_of(vectors_ND: Tensor) -> Tensor:
    """Return the rows on which the closed form measures the gap."""
    return torch.arange(min(len(vectors_ND), MEASURED))


def identities_of(folder: Path) -> Iterator[np.ndarray]:
    """Yield the photographs of each identity."""
    for identity in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield np.stack([cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in sorted(identity.iterdir())])


def drawn_identities(count: int) -> Iterator[np.ndarray]:
    """Yield six images of each synthetic identity."""
    from gif_core.synthetic import draw_face

    for identity in range(count):
        yield np.stack([draw_face(0, identity, sample) for sample in range(6)])


def encode(identities: Iterator[np.ndarray]) -> Tensor:
    """Return identity vectors (Eq. 3) of tiny-clip."""
    from gif_core.embedding.encoders import build_encoder
    from schemas.embedding import EmbeddingConfig

    encoder = build_encoder(EmbeddingConfig(model="tiny-clip", pretrained="synthetic"), torch.device("cpu"))
    return unit_rows(torch.stack([encoder.encode(images).double().mean(dim=0) for images in identities])).float()


def simulate(count: int, dimensions: int = 512) -> Tensor:
    """Draw clusters of about twenty with a falling spectrum around one direction, with a mean cosine of 0.7."""
    generator = torch.Generator().manual_seed(0)
    spread_D = torch.linspace(1, 0.05, dimensions)
    centres = torch.randn(max(count // 20, 1), dimensions, generator=generator) * spread_D
    own = 0.7 * torch.randn(count, dimensions, generator=generator) * spread_D
    spread_ND = unit_rows(centres[torch.randint(len(centres), (count,), generator=generator)] + own)
    common = unit_rows(torch.randn(1, dimensions, generator=generator))
    return unit_rows(0.7**0.5 * common + 0.3**0.5 * spread_ND)


def compare(name: str, vectors_ND: Tensor, ways: dict[str, Way]) -> dict[str, dict[str, float]]:
    """Print and return a row per method."""
    vectors_ND = unit_rows(vectors_ND)
    start = Neighbourhoods(ShardedRows(vectors_ND), seed=0)
    print(f"\n{name}: {len(vectors_ND)} x {vectors_ND.shape[1]}, gap at the start {gap_of(vectors_ND):.2f}")
    print(f"{'':52s}   gap   kNN-10 kNN-50 Spearman min.dist. epochs products seconds")
    found = {}
    for way, run in ways.items():
        begun = time.perf_counter()
        result = run(vectors_ND)
        seconds = time.perf_counter() - begun
        kept = start.kept(ShardedRows(result.vectors_ND))
        metrics = {
            "gap": gap_of(result.vectors_ND),
            "knn10": kept.neighbours,
            "knn50": neighbours_kept(vectors_ND, result.vectors_ND, neighbours=50),
            "spearman": kept.spearman,
            "min_distance": separation_scores(result.vectors_ND).min,
        }
        shown = "  ".join(f"{value:6.3f}" for value in metrics.values())
        print(f"{way:52s} {shown}  {result.epochs:6d} {result.products:6d} {seconds:9.1f}", flush=True)
        found[way] = {key: round(value, 4) for key, value in metrics.items()} | {
            "epochs": result.epochs,
            "products": result.products,
        }
    return found


def load(name: str, given: argparse.Namespace) -> Tensor:
    """Return the vectors of a dataset."""
    if name == "faces":
        return encode(identities_of(given.folder))
    return simulate(given.cone) if name == "cone" else encode(drawn_identities(given.identities))


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", choices=("faces", "drawn", "cone"), default=["drawn", "cone"])
    parser.add_argument("--folder", type=Path, help="of faces: a sub-folder of aligned images per identity")
    parser.add_argument("--vectors", type=Path, nargs="*", default=[])
    parser.add_argument("--identities", type=int, default=2000)
    parser.add_argument("--cone", type=int, default=20_000)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--with", dest="also", nargs="*", default=[], help="some of the methods that --all adds")
    given = parser.parse_args()
    ways = WAYS | {name: way for name, way in TRIED.items() if given.all or name in given.also}
    tables = {path.stem: compare(path.stem, torch.from_numpy(np.load(path)), ways) for path in given.vectors}
    tables |= {name: compare(name, load(name, given), ways) for name in given.data}
    for name, table in tables.items():
        ratio = table[DEFAULT]["knn10"] / table["plain descent"]["knn10"]
        print(f"{name}: neighbours kept by the default / by plain descent: {ratio:.2f}")
    print(json.dumps({"benchmark": "separation_tradeoff", "results": tables}))


if __name__ == "__main__":
    main()
