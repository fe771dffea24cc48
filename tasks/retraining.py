"""The decision about a challenger as a task, and what Prefect's UI shows of it."""

import logging
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from gif_core.artifacts import ArtifactStore
from gif_core.retraining import compare, enter_verdict, judge
from gif_core.runtime import metric_name, percent, set_name
from schemas.artifacts import ArtifactRef
from schemas.retraining import CodesChoice, Compared, Decision, RetrainingPolicy, RetrainingResult
from tasks.progress import warn_of_prefect
from tasks.retries import try_again

logger = logging.getLogger(__name__)
ARTIFACT = "retraining"


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
    """Compare champion and challenger on the same sets, enter the verdict, and let the tag follow."""
    store = ArtifactStore(store_address)
    metrics = compare(store.open(scores["champion"]), store.open(scores["challenger"]), policy.promotion)
    promoted, because = judge(metrics)
    winner = "challenger" if promoted else "champion"
    return enter_verdict(
        store,
        policy.tag,
        champion=models["champion"].key,
        challenger=models["challenger"].key,
        promoted=promoted,
        because=because,
        evaluation=scores[winner].key,
        evaluations={name: ref.key for name, ref in scores.items()},
        metrics=metrics,
        policy=policy.model_dump(mode="json"),
        **about,
    )


def show_result(result: RetrainingResult) -> None:
    """Tell the log and Prefect's UI what was decided and why."""
    logger.info("%s", result.message)
    with warn_of_prefect("the decision"):
        create_markdown_artifact(key=ARTIFACT, markdown=describe_result(result), description=result.message[:200])


def describe_result(result: RetrainingResult) -> str:
    """Markdown: the outcome, the metrics side by side, what was done about the codes."""
    lines = [result.message[:1].upper() + result.message[1:] + "."]
    entry = result.decision
    if entry is None:
        return lines[0]
    lines += ["", f"Decision {entry.number} of `{entry.tag}`, run `{entry.run_id}`."]
    if entry.codes:
        lines += ["", *_describe_codes(entry.codes, fine_tuned=bool(entry.fine_tuned))]
    if entry.metrics:
        lines += ["", "| metric | champion | challenger | difference by chance | |", "|---|---|---|---|---|"]
        lines += [_metric_row(row) for row in entry.metrics]
    return "\n".join(lines)


def _metric_row(row: Compared) -> str:
    interval = f"{100 * row.low:+.2f} … {100 * row.high:+.2f} points"
    name = f"{set_name(row.set)}: {metric_name(row.metric)}".replace("|", "\\|")
    return f"| {name} | {percent(row.champion)} | {percent(row.challenger)} | {interval} | {row.verdict} |"


def _describe_codes(codes: CodesChoice, *, fine_tuned: bool) -> list[str]:
    done = "Codes were extended" if codes.action == "extend" else "Codes were made anew"
    learned = "fine-tuned from the champion" if fine_tuned else "trained anew"
    lines = [f"{done}: {codes.because}. The challenger was {learned}."]
    metrics = {
        "identities": codes.identities,
        "new identities": codes.new_identities,
        "share of the code tree": None if codes.occupancy is None else f"{codes.occupancy:.1%}",
        "least distance of code vectors": codes.separation,
        "the same when codes were last made anew": codes.separation_before,
    }
    return [*lines, *(f"- {name}: {value}" for name, value in metrics.items() if value is not None)]
