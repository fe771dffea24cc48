"""Does one thing to a store in a process of its own, which a test may kill: python acting.py WHAT STORE [BYTES].

publish: an artifact of so many random bytes. checkpoint: so many in a checkpoint. read: says that it has opened the
artifact, and reads it when it gets a line.
"""

import hashlib
import os
import sys

from gif_core.artifacts import ArtifactStore, Checkpoints, checkpoint_folder

KEY = "a" * 64


def publish(store: ArtifactStore, size: int) -> None:
    with store.draft(store.ref("training", KEY), {}, {}) as draft:
        (draft.folder / "model").write_bytes(os.urandom(size))
        store.publish(draft)


def checkpoint(store: ArtifactStore, size: int) -> None:
    import torch

    checkpoints = Checkpoints(store, checkpoint_folder("training", store.ref("training", KEY), {}))
    folder = checkpoints.new_folder(1)
    file = checkpoints.write(folder, "backbone", {"weights": torch.zeros(size, dtype=torch.uint8)}, {})
    checkpoints.commit(folder, 1, [file], {})


def read(store: ArtifactStore) -> None:
    artifact = store.open(store.ref("training", KEY))
    print(artifact.stored("model").sha256, flush=True)  # noqa: T201
    sys.stdin.readline()
    print(hashlib.sha256(artifact.path("model").read_bytes()).hexdigest(), flush=True)  # noqa: T201


if __name__ == "__main__":
    what, address, *sizes = sys.argv[1:]
    {"publish": publish, "checkpoint": checkpoint, "read": read}[what](ArtifactStore(address), *map(int, sizes))
