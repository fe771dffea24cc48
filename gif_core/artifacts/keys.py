"""The key of an artifact: a digest of everything that its content depends on."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from schemas.artifacts import MadeFrom
from schemas.stages import VERSIONS, StageName


def artifact_key(stage: StageName, settings: Mapping[str, Any], inputs: Mapping[StageName, str]) -> str:
    """SHA-256 of the stage, its version, its settings and the keys of its inputs."""
    parts = {"stage": stage, "version": VERSIONS[stage], "settings": settings, "inputs": inputs}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def content_of(inputs: Mapping[StageName, MadeFrom]) -> str:
    """SHA-256 of the inputs' content: an input that is computed again under the same key may differ."""
    digests = json.dumps({name: source.digest for name, source in sorted(inputs.items())})
    return hashlib.sha256(digests.encode()).hexdigest()
