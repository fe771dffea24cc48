"""Finding identities by their codes against FAISS's flat search of all code vectors: time and agreement.

python benchmarks/identification.py [--identities 10000 100000 1000000] [--dimension 512] [--beam 64] [--cosine 0.5]

Code vectors are drawn so that codes can be learned from them: half of a vector is the sum of one direction per token,
shared by all identities with the same token value, and half is individual. Token heads of the usual size are trained
briefly on noisy copies of code vectors, with a cosine of `--cosine` to the original, and searched with other noisy
copies. Times are therefore those of any model with as many identities; accuracy is that of this toy. The reference is
`faiss.knn` with inner products over all code vectors, on as many threads. `find` is the search alone;
`find_with_probabilities` is what `gif identify` does: it also returns the probability of each found code among all
codes of the table, which requires a sum over all of them. Times are processor times.
"""

import argparse
import copy
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from gif_core.heads import TokenHeads
from gif_core.recognition import METHODS, Gallery, Method, search_codes, token_log_probs
from gif_core.tokenization import Codes, CodeShape, code_shape, unpack_codes
from schemas.tokenization import TokenizationConfig

CHUNK = 8192
TRAINING_BATCH = 512
Floats = NDArray[np.float32]


def unit(rows: Floats) -> Floats:
    """Normalise the rows."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def draw_identities(identities: int, dimension: int, rng: np.random.Generator) -> tuple[Codes, CodeShape, Floats]:
    """Return codes, and code vectors of which half follows from the codes."""
    shape = code_shape(identities, TokenizationConfig())
    codes_NL = unpack_codes(rng.permutation(shape.capacity(0))[:identities], shape)
    directions_LVD = rng.standard_normal((shape.length, shape.vocab_size, dimension), dtype=np.float32)
    vectors_ND = np.empty((identities, dimension), np.float32)
    for start in range(0, identities, CHUNK):
        codes = codes_NL[start : start + CHUNK]
        common = sum(directions_LVD[level, codes[:, level]] for level in range(shape.length))
        own = rng.standard_normal((len(codes), dimension), dtype=np.float32)
        vectors_ND[start : start + CHUNK] = unit(common / np.sqrt(shape.length) + own)
    return codes_NL, shape, vectors_ND


def disturb(vectors_BD: Floats, cosine: float, rng: np.random.Generator) -> Floats:
    """Return unit vectors at about this cosine to the given ones."""
    noise_BD = unit(rng.standard_normal(vectors_BD.shape, dtype=np.float32))
    return unit(cosine * vectors_BD + np.sqrt(1 - cosine**2) * noise_BD).astype(np.float32)


def train_heads(
    codes_NL: Codes, shape: CodeShape, vectors_ND: Floats, cosine: float, steps: int, rng: np.random.Generator
) -> TokenHeads:
    """Train heads to predict codes from noisy code vectors."""
    torch.manual_seed(0)
    heads = TokenHeads(shape.length, shape.vocab_size, vectors_ND.shape[1], scale=16.0)
    optimizer = torch.optim.Adam(heads.parameters(), lr=1e-3)
    for _ in range(steps):
        chosen = rng.integers(len(codes_NL), size=TRAINING_BATCH)
        logits_LBV = heads.token_logits(torch.from_numpy(disturb(vectors_ND[chosen], cosine, rng)))
        wanted_LB = torch.from_numpy(codes_NL[chosen].T.astype(np.int64))
        loss = F.cross_entropy(logits_LBV.flatten(0, 1), wanted_LB.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return heads.eval()


def seconds_of(work: Callable[[], Any], rounds: int) -> float:
    """Return the minimum processor time of some rounds after a warm-up; other programs hardly affect it."""
    work()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def measure(identities: int, given: argparse.Namespace) -> dict[str, Any]:
    """Return all metrics at one number of enrolled identities."""
    rng = np.random.default_rng(0)
    codes_NL, shape, vectors_ND = draw_identities(identities, given.dimension, rng)
    heads = train_heads(codes_NL, shape, vectors_ND, given.cosine, given.steps, rng)
    started = time.perf_counter()
    gallery = Gallery(heads, codes_NL, shape, vectors_ND, beam=given.beam)
    metrics: dict[str, Any] = {"length": shape.length, "vocab_size": shape.vocab_size}
    metrics["tree_seconds"] = time.perf_counter() - started
    metrics["tree_mb"] = sum(table.nbytes for table in gallery.tree.children) / 2**20
    chosen = rng.integers(identities, size=given.images)
    z_BD = disturb(vectors_ND[chosen], given.cosine, rng)
    found = {method: gallery.find(z_BD, 5, method).identities_BK for method in METHODS}
    for method, identities_BK in found.items():
        hits_BK = identities_BK == chosen[:, None]
        metrics[f"{method}_rank_1"], metrics[f"{method}_rank_5"] = hits_BK[:, 0].mean(), hits_BK.any(axis=1).mean()
        metrics[f"{method}_agrees"] = (identities_BK[:, 0] == found["exhaustive"][:, 0]).mean()
    with torch.inference_mode():
        decoded = search_codes(gallery.tree, token_log_probs(heads, torch.from_numpy(z_BD)), given.beam)
    metrics["proven_best"] = (decoded.log_probs_BK[:, 0] >= decoded.bound_B).double().mean().item()
    return metrics | measure_times(gallery, z_BD, given.rounds)


def with_map(gallery: Gallery) -> Gallery:
    """Add a map of the code vectors, as training has by default; untrained, it is the identity."""
    _, num_values, dimension = gallery.heads.classifiers_LVD.shape
    heads = TokenHeads(gallery.tree.shape.length, num_values, dimension, scale=16.0, map_width=dimension)
    heads.load_state_dict(gallery.heads.state_dict(), strict=False)
    mapped = copy.copy(gallery)
    mapped.heads = heads.eval()
    return mapped


def find(gallery: Gallery, z_BD: Floats, method: Method) -> NDArray[np.int64]:
    """Run the search alone."""
    return gallery.find(z_BD, 5, method).identities_BK


def find_with_probabilities(gallery: Gallery, z_BD: Floats, method: Method) -> NDArray[np.float64]:
    """Run what `gif identify` prints for an image."""
    return gallery.probabilities(z_BD, find(gallery, z_BD, method))


def measure_times(gallery: Gallery, z_BD: Floats, rounds: int) -> dict[str, float]:
    """Return milliseconds per image and the speed-up over flat search, for all images at once and for a single one."""
    metrics, mapped = {}, with_map(gallery)
    for name, queries_BD in (("batch", z_BD), ("single", z_BD[:1])):
        flat = seconds_of(
            lambda z=queries_BD: faiss.knn(z, gallery.vectors_ND, 5, metric=faiss.METRIC_INNER_PRODUCT), rounds
        )
        metrics[f"{name}_flat_ms"] = 1000 * flat / len(queries_BD)
        ways = {"codes": (gallery, "codes"), "reranked": (gallery, "reranked"), "mapped": (mapped, "reranked")}
        for way, (searched, method) in ways.items():
            for what, work in (("find", find), ("find_with_probabilities", find_with_probabilities)):
                seconds = seconds_of(partial(work, searched, queries_BD, method), rounds)
                metrics[f"{name}_{way}_{what}_ms"] = 1000 * seconds / len(queries_BD)
                metrics[f"{name}_flat_over_{way}_{what}"] = flat / seconds
    return metrics


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--beam", type=int, default=64)
    parser.add_argument(
        "--cosine", type=float, default=0.5, help="Cosine of a feature to the code vector of its identity."
    )
    parser.add_argument("--steps", type=int, default=200, help="Training steps of the token heads.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    results = {}
    for identities in given.identities:
        metrics = {name: float(f"{metric:.4g}") for name, metric in measure(identities, given).items()}
        results[str(identities)] = metrics
        print(f"{identities:,} identities")
        for name, metric in metrics.items():
            print(f"  {name}: {metric:g}")
    print(json.dumps({"benchmark": "identification", **vars(given), "results": results}))


if __name__ == "__main__":
    main()
