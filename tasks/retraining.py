"""The decision about a challenger as a Prefect task, and its result in the log and Prefect's UI."""

import logging
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event
from prefect.tasks import exponential_backoff

from gif_core import retraining
from gif_core.artifacts import ArtifactStore
from gif_core.runtime import metric_name, percent, set_name
from schemas.artifacts import ArtifactRef
from schemas.retraining import CodesChoice, Compared, Decision, RetrainingPolicy, RetrainingResult
from tasks.progress import warn_of_prefect
from tasks.retries import try_again

logger = logging.getLogger(__name__)
ARTIFACT = "retraining"
EVENT = "gif.retrain.{}"
"""Name of the event of an outcome, for automations."""
NOTHING_NEW = "nothing_new"
"""The outcome without a decision: the sources have not changed."""
RESOURCE = "gif.retrain"


@task(
    name="decide",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(10),
    retry_condition_fn=try_again,
)
def decide(
    store_address: str,
    policy: RetrainingPolicy,
    models: dict[str, ArtifactRef],
    scores: dict[str, ArtifactRef],
    about: dict[str, Any],
) -> Decision:
    """Compare champion and challenger on the same sets, record the verdict and move the tag."""
    return retraining.decide(ArtifactStore(store_address), policy, models, scores, about)


def show_result(result: RetrainingResult) -> None:
    """Show the decision and its reason in the log and in Prefect's UI, and announce it as an event."""
    logger.info("%s", result.message)
    with warn_of_prefect("the decision"):
        create_markdown_artifact(key=ARTIFACT, markdown=describe_result(result), description=result.message[:200])
        payload = {"message": result.message, "text": describe_result(result)}
        emit_event(EVENT.format(result.outcome), {"prefect.resource.id": RESOURCE}, payload=payload)


def describe_result(result: RetrainingResult) -> str:
    """Return the outcome, the compared metrics and the choice of codes as Markdown."""
    lines = [result.message[:1].upper() + result.message[1:] + "."]
    entry = result.decision
    if entry is None:
        return lines[0]
    lines += ["", f"Decision {entry.number} of `{entry.tag}`, run `{entry.run_id}`."]
    if entry.codes:
        lines += ["", *_describe_codes(entry.codes, fine_tuned=bool(entry.fine_tuned))]
    if entry.metrics:
        lines += ["", "| metric | champion | challenger | interval of the difference | |", "|---|---|---|---|---|"]
        lines += [_metric_row(row) for row in entry.metrics]
    return "\n".join(lines)


def _metric_row(row: Compared) -> str:
    interval = f"{100 * row.low:+.2f} … {100 * row.high:+.2f} points"
    name = f"{set_name(row.set)}: {metric_name(row.metric)}".replace("|", "\\|")
    return f"| {name} | {percent(row.champion)} | {percent(row.challenger)} | {interval} | {row.verdict} |"


def _describe_codes(codes: CodesChoice, *, fine_tuned: bool) -> list[str]:
    action = "Codes were extended" if codes.action == "extend" else "Codes were rebuilt"
    start = "fine-tuned from the champion" if fine_tuned else "trained from scratch"
    lines = [f"{action}: {codes.because}. The challenger was {start}."]
    metrics = {
        "identities": codes.identities,
        "new identities": codes.new_identities,
        "share of codes used": None if codes.occupancy is None else f"{codes.occupancy:.1%}",
        "minimum distance of code vectors": codes.separation,
        "the same when codes were last rebuilt": codes.separation_before,
    }
    return [*lines, *(f"- {name}: {value}" for name, value in metrics.items() if value is not None)]
