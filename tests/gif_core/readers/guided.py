"""Inputs that follow what the parsers execute, by atheris: `python guided.py <format> <inputs> <folder>`.

Sound files are the first inputs. An error that the reader does not explain, 5 s or 1 GB for one input end it with the
input in the folder.
"""

import resource
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gif_core", "schemas"]):
    from tests.gif_core.readers.fuzz import READERS, ROOM, SEEDS, SLOWEST, Fetches, read_packed


def main() -> None:
    kind, inputs, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    fetches = Fetches()
    read = READERS.get(kind) or (lambda content: read_packed(kind, content, fetches))
    sound = folder / "sound"
    sound.mkdir()
    for number, seed in enumerate(SEEDS[kind]()):
        (sound / str(number)).write_bytes(seed.content)

    def read_one(content: bytes) -> None:
        assert read(content) != "unexplained"

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + ROOM // 2**20
    limits = [f"-runs={inputs}", f"-timeout={SLOWEST:.0f}", f"-rss_limit_mb={used}", "-seed=20250"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(sound)], read_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
