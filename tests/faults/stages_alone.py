"""All stages of a small run one after the other, as a flow runs them but without Prefect: about a second each.

In a process of its own: `python -m tests.faults.stages_alone STORE`.
"""

import multiprocessing
import sys
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any, Final

from gif_core.artifacts import Artifact, ArtifactStore, begin_run, condemning, move_tag, only_one, save_run
from gif_core.planning import identify_stage
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import INPUTS, STAGES, StageName

RESUMING: Final = ("ingestion", "separation")
LOADED: Final = (
    "gif_core.embedding.encoders.open_clip_encoder",
    "gif_core.training.worker",
    "faiss",
    "duckdb",
    "plotly",
)
"""What stages import when they compute."""
SETTINGS: Final[dict[str, Any]] = {
    "preset": "demo",
    "ingestion": {
        "sources": [{"kind": "synthetic", "identities": 18, "smallest": 3, "largest": 3}],
        "held_out": 0.4,
    },
    "separation": {"epochs": 5},
    "training": {"epochs": 1, "batch_size": 8, "warmup_steps": 0, "val_pairs": 0},
    "evaluation": {"pairs": 20, "sets": [{"kind": "held_out"}], "identification": {"images": 8}},
    "execution": {"workers": 1, "checkpoint_steps": 1},
}


def settings_in(store: str) -> RunConfig:
    return load_config({**SETTINGS, "store": store})


def go_through(store_folder: str) -> None:
    """Find or make the artifact of every stage, and record the run."""
    config, store = settings_in(store_folder), ArtifactStore(store_folder)
    record, made = begin_run(store, config), dict[StageName, Artifact]()
    for stage in STAGES:
        inputs = {name: made[name] for name in INPUTS[stage]}
        identity = identify_stage(store, config, stage, inputs)
        with condemning(store), only_one(store.storage, identity.ref):
            if store.look_up(identity.ref, identity.made_from) is None:
                record = save_run(store, record, current=stage)
                asked = (identity.ref, identity.settings, identity.made_from)
                with store.draft(*asked, resume=stage in RESUMING) as draft:
                    for _ in import_module(f"gif_core.{stage}.stage").run(config, inputs, draft):
                        pass
                    store.publish(draft)
            move_tag(store, "latest", identity.ref)
        made[stage] = store.open(identity.ref)
    save_run(store, record, state="completed", current=None)


def start(store_folder: str) -> BaseProcess:
    """The same in a process of its own, which has everything imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.faults.stages_alone", *(f"gif_core.{stage}.stage" for stage in STAGES), *LOADED]
    )
    process = context.Process(target=go_through, args=(store_folder,))
    process.start()
    return process


if __name__ == "__main__":
    go_through(sys.argv[1])
