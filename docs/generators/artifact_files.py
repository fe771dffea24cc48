"""The page of artifact files, from `schemas/files.py`, where the name of every file of an artifact stands."""

import re
from pathlib import Path

from markdown_pieces import code, table

from schemas.stages import INPUTS, STAGES, VERSIONS

SOURCE = Path(__file__).parents[2] / "schemas/files.py"
NAMED = re.compile(r'^\w+: Final = "([^"]+)"\n"""(.+?)"""$', re.MULTILINE | re.DOTALL)
INTRODUCTION = """# Artifact files

Generated from `schemas/files.py`. Every stage publishes one artifact, `<store>/<stage>/<key>/`: a manifest and the
files below. Faces are in Arrow shards (`identities-00000.arrow`, `held_out-00000.arrow`, …): `identity_id`, `name`, and
`image`, the bytes of the image file. [Storage](../operations/storage.md) describes what else is in a store;
`gif artifacts show ARTIFACT` lists the files of one artifact with sizes and digests.

The manifest holds the stage, the key, the version of the stage, every setting that the key covers, the keys and digests
of the inputs, the version of the code, the files with their sha256, the headline metrics, when it was made and how long
that took. Checkpoints in `<store>/checkpoints/` are safetensors files and a `state.json`, which is written last.
"""


def page() -> str:
    """The whole page."""
    sections = re.split(r"^# (.+)$", SOURCE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    titles, texts = sections[::2], sections[1::2]
    return "\n".join([INTRODUCTION, *map(_section, titles, texts)])


def _section(title: str, text: str) -> str:
    rows = ([code(name), meaning] for name, meaning in NAMED.findall(text))
    return f"## {title}\n\n{_about(title)}{table(('file', 'holds'), rows)}"


def _about(title: str) -> str:
    for stage in STAGES:
        if stage == title:
            return f"Version {VERSIONS[stage]}; made from {', '.join(INPUTS[stage]) or 'the sources'}.\n\n"
    return ""
