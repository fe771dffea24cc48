"""What L_C costs verification, and what it gives: does it have to shape the network for the codes to be read?

    python benchmarks/reading_codes.py [--identities 8000] [--seeds 3] [--shares 0 0.1 0.3 1] [--threads 1]

In the benchmark's world of vectors, for each share of the gradient of L_C that reaches the network
(`training.code_gradient`): TAR on identities that were not trained on, and how often a new vector of an identity that
was trained on is identified among all of them, by the probability of its code and by the cosine to its row. Without L_C
(`code_weight: 0`) codes cannot be read. `retokenized` has the default share, and codes made again from the rows at one
and two thirds of the training (`head_variants.py`). L_C is that of the new vectors, the mean over the tokens. The last
line is JSON.
"""

# Shapes: B vectors to identify, M identities, L code length, V vocab size, D dimensions.

import argparse
import json
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pair_histograms import count_pairs, measure
from scale import COMMON
from torch import Tensor
from worlds import Split, VectorWorld, split_world

from gif_core.heads.gif import GifHead
from schemas.training import TrainingConfig

HELD_OUT, IMAGES = 1500, 6


def keep_probes(split: Split, images: int) -> tuple[Split, NDArray[np.int64], NDArray[np.int64]]:
    """The last vector of every identity is not trained on; returns those vectors and their labels."""
    is_probe = np.arange(len(split.train)) % images == images - 1
    rest = replace(split, train=split.train[~is_probe], labels=split.labels[~is_probe])
    return rest, split.train[is_probe], split.labels[is_probe]


@torch.inference_mode()
def identify(head: GifHead, features_BD: Tensor, labels_B: Tensor) -> dict[str, float]:
    """How many are identified among all identities, in %."""
    z_BD = F.normalize(features_BD, dim=1)
    log_LBV = head.token_logits(z_BD).log_softmax(dim=2)
    codes_ML = torch.from_numpy(np.asarray(head.codes_NL, np.int64))
    by_code_BM = sum(log_BV[:, codes_M] for log_BV, codes_M in zip(log_LBV, codes_ML.T, strict=True))
    by_row_BM = z_BD @ head.place(head.vectors.weight_MD).T
    found = {"rank1_by_code": by_code_BM, "rank1_by_row": by_row_BM}
    ranks = {name: 100 * (score.argmax(1) == labels_B).float().mean().item() for name, score in found.items()}
    own_B = by_code_BM.gather(1, labels_B[:, None])
    return ranks | {"L_C": -own_B.mean().item() / len(codes_ML.T)}


def evaluate(world: VectorWorld, split: Split, config: TrainingConfig, seed: int, variant: str) -> dict[str, float]:
    """Train, verify unseen identities, and identify new vectors of those that were trained on."""
    split, probes, labels = keep_probes(split, IMAGES + 1)
    model, head = world.fit(split, config, seed, variant)
    pairs = count_pairs(world.embed(model, split.test), split.test_labels)
    tar = 100 * measure(pairs, (1e-2, 1e-3), np.ones((1, HELD_OUT)))[0]
    assert isinstance(head, GifHead)
    found = identify(head, world.embed(model, probes), torch.from_numpy(labels))
    return {"accuracy": tar[0], "TAR@1e-2": tar[1], "TAR@1e-3": tar[2]} | found


def main() -> None:
    """Measure, print, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identities", type=int, default=8000)
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.1, 0.3, 1])
    parser.add_argument("--every", type=json.loads, default={}, help="settings of every training, as JSON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    world = VectorWorld(given.identities + HELD_OUT, IMAGES + 1)
    split = split_world(world, HELD_OUT, given.split)
    kinds: dict[str, dict[str, float]] = {f"share {share:g}": {"code_gradient": share} for share in given.shares}
    kinds |= {"without L_C": {"code_weight": 0}, "retokenized": {}}
    results: dict[str, dict[str, list[float]]] = {}
    for name, settings in kinds.items():
        config = TrainingConfig.model_validate(COMMON["vectors"] | given.every | settings)
        variant = "retokenize" if name == "retokenized" else ""
        many = [evaluate(world, split, config, seed, variant) for seed in range(given.seeds)]
        results[name] = {key: [round(each[key], 2) for each in many] for key in many[0]}
        cells = (
            f"{key} {np.mean(v):.2f} ± {np.std(v) / max(1, len(v) - 1) ** 0.5:.2f}" for key, v in results[name].items()
        )
        print(f"{name:12}", ", ".join(cells), flush=True)
    print(json.dumps({"benchmark": "reading_codes", "identities": given.identities, "results": results}))


if __name__ == "__main__":
    main()
