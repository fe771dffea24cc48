"""The flow `retrain`: train a challenger on new data, compare it with the champion, promote the better one."""

import logging

from prefect import flow
from prefect.states import Completed

from flows.stages import Run, flow_store
from gif_core.artifacts import ArtifactStore, condemning, find_champion, read_history, settle
from gif_core.planning import leave_out_missing_sets
from gif_core.retraining import (
    Champion,
    challenger_config,
    check_separation,
    choose_codes,
    current_ingestion,
    extend_codes,
    find_earlier_verdict,
    open_champion,
    record_first,
)
from schemas.artifacts import ArtifactRef
from schemas.loading import load_config
from schemas.retraining import CodesChoice, Decision, RetrainingPolicy, RetrainingResult
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName
from tasks.retraining import decide, show_result

logger = logging.getLogger(__name__)
SEPARATION: StageName = "separation"
"""The first stage of a challenger that depends on the champion."""


@flow(name="retrain", validate_parameters=True)
def retrain(
    config: RunConfig | str = "demo",
    policy: RetrainingPolicy = RetrainingPolicy(),  # noqa: B008 - frozen; Prefect's form shows its fields
    force: bool = False,
) -> RetrainingResult:
    """Train a challenger when the sources have changed, and promote it if it is better than the champion.

    Args:
        config: A preset's name, a YAML file's path, or the settings themselves, on top of their `preset`.
        policy: When codes are extended, how the challenger is trained, and when it is promoted.
        force: Train and compare a challenger even if the sources have not changed.
    """
    settings = leave_out_missing_sets(load_config(config))
    with flow_store(settings) as store, condemning(store):
        result = _retrain(store, settings, policy, force=force)
        show_result(result)
    return Completed(message=result.message, data=result)  # type: ignore[return-value]


def _retrain(store: ArtifactStore, config: RunConfig, policy: RetrainingPolicy, *, force: bool) -> RetrainingResult:
    if settle(store, policy.tag):
        logger.warning("the tag %s did not match the last decision and was moved", policy.tag)
    model = find_champion(store, policy.tag)
    if model is None:
        return _make_first_champion(store, config, policy)
    champion = open_champion(store, model)
    history = read_history(store, policy.tag)
    reason = find_earlier_verdict(current_ingestion(store, config).key, champion, history)
    if reason and not force:
        return RetrainingResult(outcome="nothing_new", message=f"nothing new: {reason}")
    return _challenge(store, config, champion, policy, since=len(history))


def _make_first_champion(store: ArtifactStore, config: RunConfig, policy: RetrainingPolicy) -> RetrainingResult:
    """Without a champion, run all stages and make the model champion; stored artifacts are reused."""
    run = Run.begin(store, config)
    record, refs = run.go_through(config, STAGES), run.refs
    decision = record_first(
        store,
        policy.tag,
        refs["training"].key,
        because="there was no champion",
        ingestion=refs["ingestion"].key,
        evaluation=refs["evaluation"].key,
        run_id=record.run_id,
        policy=policy.model_dump(mode="json"),
    )
    message = f"{refs['training']} is the first {policy.tag}"
    return RetrainingResult(outcome="first", message=message, decision=decision)


def _challenge(
    store: ArtifactStore, config: RunConfig, champion: Champion, policy: RetrainingPolicy, *, since: int
) -> RetrainingResult:
    """Train a challenger on the current sources, evaluate both models on its sets, and decide."""
    run = Run.begin(store, config)
    run.go_through(config, ("ingestion", "embedding"), ends=False)
    codes = _settle_codes(run, config, champion, policy)
    with run.end_recorded():
        challenger, fine_tuned = challenger_config(config, champion, codes, policy.training)
    scores = {"champion": _evaluate_champion(run, challenger, champion)}
    record, refs = run.go_through(challenger, STAGES[STAGES.index(SEPARATION) :]), run.refs
    if refs["training"] == champion.training.ref:
        return RetrainingResult(
            outcome="nothing_new", message=f"these settings and sources produce the champion {refs['training']} again"
        )
    scores["challenger"] = refs["evaluation"]
    models = {"champion": champion.training.ref, "challenger": refs["training"]}
    about = {"ingestion": refs["ingestion"].key, "run_id": record.run_id, "codes": codes, "fine_tuned": fine_tuned}
    decision: Decision = decide(config.store, policy, models, scores, about | {"since": since})
    return _result_of(decision, models)


def _settle_codes(run: Run, config: RunConfig, champion: Champion, policy: RetrainingPolicy) -> CodesChoice:
    """Choose between extending and rebuilding codes; extension is checked once the new vectors are placed."""
    store = run.store
    with run.end_recorded():
        choice = choose_codes(store, config, champion, store.open(run.refs["ingestion"]), policy.codes)
    if choice.action == "extend":
        run.go_through(extend_codes(config, champion), [SEPARATION], ends=False)
        with run.end_recorded():
            choice = check_separation(store, choice, champion, store.open(run.refs[SEPARATION]), policy.codes)
    logger.info("codes: %s, because %s", choice.action, choice.because)
    return choice


def _evaluate_champion(run: Run, config: RunConfig, champion: Champion) -> ArtifactRef:
    """Evaluate the champion on the sets of the challenger; the scores are stored like any others."""
    own = {each.ref.stage: each.ref for each in (champion.separation, champion.tokenization, champion.training)}
    beside = Run(run.store, run.record.model_copy(update={"current": "evaluation"}), run.refs | own)
    with beside.end_recorded():
        beside.run_stage("evaluation", config)
    return beside.refs["evaluation"]


def _result_of(decision: Decision, models: dict[str, ArtifactRef]) -> RetrainingResult:
    """Describe a decision about a challenger."""
    if decision.champion == models["challenger"].key:
        message = f"{models['challenger']} is the new {decision.tag} instead of {models['champion']}"
        return RetrainingResult(outcome="promoted", message=f"{message}: {decision.because}", decision=decision)
    message = f"{models['champion']} stays {decision.tag}, {models['challenger']} is not promoted"
    return RetrainingResult(outcome="kept", message=f"{message}: {decision.because}", decision=decision)
