"""A stage whose artifact is stored already: Prefect shows it as Cached, and its libraries are not imported."""

from collections.abc import Sequence
from typing import Any, Final

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from gif_core.artifacts import Artifact, ArtifactStore, Inputs, move_tag
from gif_core.runtime import log_fields
from schemas.execution import ExecutionConfig
from schemas.stages import StageName
from tasks.progress import warn_of_prefect
from tasks.report_link import show_link
from tasks.retries import patience, try_again
from tasks.stage import Show

SHOWN: Final[dict[StageName, Show]] = {"reporting": show_link}
"""What Prefect's UI shows of artifacts, also of reused ones."""


def reuse(
    artifact: Artifact,
    inputs: Inputs,
    store: ArtifactStore,
    execution: ExecutionConfig,
    wait_for: Sequence[State[Any]] = (),
) -> State[Any]:
    """Run a task named after the stage that ends in the state Cached; its state is returned.

    `wait_for` are the states of the stages it reads from: Prefect's UI draws an arrow from each.
    """
    ref = artifact.ref

    @task(
        name=ref.stage,
        cache_policy=NO_CACHE,
        persist_result=False,
        retry_condition_fn=try_again,
        **patience(execution),
    )
    def cached() -> Any:
        with log_fields(stage=ref.stage, artifact=str(ref)):
            move_tag(store, "latest", ref)
        if ref.stage in SHOWN:
            with warn_of_prefect(f"what {ref.stage} shows"):
                SHOWN[ref.stage](artifact, inputs)
        return Completed(name="Cached", message=f"{ref} is in the store", data=ref)

    state: State[Any] = cached(wait_for=list(wait_for), return_state=True)
    if not state.is_completed():
        state.result()  # raises; asking the state of a success takes milliseconds
    return state
