"""Time and memory of `gif identify --gallery` by the number of enrolled identities, and of opening a gallery in Python.

python benchmarks/gallery_command.py [--identities 1000 1000000] [--rounds 3]

The store is a temporary folder with an untrained network (512 dimensions) and a gallery of random templates with
three images each. `command` is the whole process on an aligned face; `open` is `EnrolledGallery.open` in a process of
its own as `gif serve` calls it, without imports: reading, checking the digest, and compressing above some size. Memory
is the highest resident size of the process, of which the mapped file of templates is a part that the system can take
back.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gif_core.artifacts import ArtifactStore, commit_version, move_tag
from gif_core.galleries.segments import save_segment
from gif_core.galleries.templates import Templates
from gif_core.synthetic import draw_jpeg

WIDTH, IMAGES = 512, 3
MEASURE = "print('peak', open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
"""Kibibytes; `getrusage` would give a child those of its parent."""
OPEN = f"""
import sys, time
from gif_core.galleries import EnrolledGallery
from gif_core.recognition import Recognizer
import faiss
began = time.perf_counter()
EnrolledGallery.open(sys.argv[1], "big", device="cpu")
print("seconds", time.perf_counter() - began)
{MEASURE}
"""
COMMAND = f"""
import sys
from flows.cli import main
try:
    main()
finally:
    {MEASURE}
"""


def make_model(store: ArtifactStore) -> str:
    """A network of random weights."""
    from safetensors.torch import save_file

    from gif_core.backbones import build_backbone

    with store.draft(store.ref("training", "1" * 64), {}, {}) as draft:
        weights = build_backbone("iresnet_tiny", WIDTH).state_dict()
        save_file({name: each.contiguous() for name, each in weights.items()}, draft.folder / "backbone.safetensors")
        about = {"backbone": "iresnet_tiny", "embedding_dim": WIDTH, "head": "cosface"}
        (draft.folder / "model.json").write_text(json.dumps(about))
        published = store.publish(draft)
    move_tag(store, "latest", published)
    return published.key


def make_gallery(store: ArtifactStore, model: str, identities: int) -> None:
    """A gallery of random templates."""
    sums = np.random.default_rng(0).standard_normal((identities, WIDTH), dtype=np.float32)
    labels = [f"person {number:07}" for number in range(identities)]
    digests = [[f"{IMAGES * number + image:064x}" for image in range(IMAGES)] for number in range(identities)]
    segment = save_segment(store, "big", Templates(labels, sums, digests))
    about = {"model": model, "segments": (segment,), "identities": identities, "images": IMAGES * identities}
    commit_version(store, "big", lambda _: {**about, "missing": "a benchmark", "change": "drawn"})


def run(code: str, *arguments: str) -> tuple[float, dict[str, float]]:
    """Seconds of a process, and the numbers it prints."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    took = time.perf_counter() - began
    lines = (line.split() for line in done.stdout.splitlines())
    return took, {words[0]: float(words[1]) for words in lines if words and words[0] in ("seconds", "peak")}


def measure(folder: Path, identities: int, rounds: int) -> dict[str, Any]:
    """Medians of the rounds."""
    store = ArtifactStore(str(folder / f"store-{identities}"))
    make_gallery(store, make_model(store), identities)
    (folder / "face.jpg").write_bytes(draw_jpeg(0, 1, 0))
    asked = ("identify", str(folder / "face.jpg"), "--gallery", "big", "--store", str(folder / f"store-{identities}"))
    commands = [run(COMMAND, *asked) for _ in range(rounds)]
    opened = [run(OPEN, str(folder / f"store-{identities}"))[1] for _ in range(rounds)]
    return {
        "identities": identities,
        "command_s": median(took for took, _ in commands),
        "command_mib": median(printed["peak"] for _, printed in commands) / 1024,
        "open_s": median(printed["seconds"] for printed in opened),
        "open_mib": median(printed["peak"] for printed in opened) / 1024,
    }


def main() -> None:
    """Print a row per size, and all of them as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identities", type=int, nargs="+", default=[1000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for identities in given.identities:
            rows.append(measure(Path(folder), identities, given.rounds))
            print("  ".join(f"{name} {value:,.1f}" for name, value in rows[-1].items()), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
