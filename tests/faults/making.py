"""Makes one artifact in a process of its own, as a stage does: python making.py STORE WORDS.

It says when it has begun, and goes on when it reads a line.
"""

import sys
from collections.abc import Callable

from gif_core.artifacts import ArtifactStore, only_one

KEY = "b" * 64


def make(address: str, words: str, go_on: Callable[[], object] = lambda: None) -> str:
    """Whether it was made here or found."""
    store = ArtifactStore(address)
    ref = store.ref("training", KEY)
    with only_one(store.storage, ref):
        if store.find("training", KEY):
            return "found"
        with store.draft(ref, {}, {}) as draft:
            (draft.folder / "model").write_text(words)
            go_on()
            store.publish(draft)
    return "made"


def begin() -> None:
    print("making", flush=True)  # noqa: T201
    sys.stdin.readline()


if __name__ == "__main__":
    print(make(sys.argv[1], sys.argv[2], begin), flush=True)  # noqa: T201
