"""The stage evaluation: a trained model → scores of the model and the other systems on every set."""

import logging
from collections.abc import Generator
from pathlib import Path

from gif_core.artifacts import Draft, Inputs, InThisProcess, PartRunner, list_parts
from gif_core.evaluation import identification
from gif_core.evaluation.groups import compare_groups
from gif_core.evaluation.image_search import evaluate_search
from gif_core.evaluation.pairs import evaluate_pairs
from gif_core.evaluation.results import SetResult, write_scores
from gif_core.evaluation.templates import evaluate_templates
from gif_core.runtime import Progress
from schemas.evaluation import EvaluationSet, IjbSet, SyntheticIjbSet, TinyFaceSet
from schemas.files import PARTS_FILE
from schemas.run import RunConfig

logger = logging.getLogger(__name__)


def run(
    config: RunConfig, inputs: Inputs, draft: Draft, runner: PartRunner | None = None
) -> Generator[Progress, None, None]:
    """Evaluate all sets of pairs and templates, and identification among the enrolled."""
    draft.metrics["pairs"] = 0
    results = yield from _evaluate_sets(config, inputs, draft, runner or InThisProcess(config.execution.workers))
    given = config.evaluation.identification
    found = (yield from identification.measure_identification(config, inputs, given)) if given else None
    if found and found.undefined:
        logger.warning("%s: %s", found.title, found.undefined)
    write_scores(draft.folder, results, inputs["training"].ref.key, found, compare_groups(results))
    for result in results:
        draft.metrics |= _headline(result)
    draft.metrics |= identification.headline(found) if found else {}
    draft.metrics["parts_computed"] = sum(result.parts_computed for result in results)
    (draft.folder / PARTS_FILE).write_text(list_parts(sorted({name for result in results for name in result.parts})))


def _evaluate_sets(
    config: RunConfig, inputs: Inputs, draft: Draft, runner: PartRunner
) -> Generator[Progress, None, list[SetResult]]:
    work, results = draft.work, []
    for given in config.evaluation.sets:
        result = yield from evaluate_set(config, inputs, given, work, runner, from_scratch=draft.from_scratch)
        if result.undefined:
            logger.warning("%s: %s", result.title, result.undefined)
        results.append(result)
    return results


def evaluate_set(
    config: RunConfig, inputs: Inputs, given: EvaluationSet, work: Path, runner: PartRunner, *, from_scratch: bool
) -> Generator[Progress, None, SetResult]:
    """Evaluate one set of any kind; `work` holds what has to be drawn first."""
    if isinstance(given, TinyFaceSet):
        return evaluate_search(config, inputs, given, runner, from_scratch=from_scratch)
    if isinstance(given, IjbSet | SyntheticIjbSet):
        return evaluate_templates(config, inputs, given, work, runner, from_scratch=from_scratch)
    return evaluate_pairs(config, inputs, given, work)


def _headline(result: SetResult) -> dict[str, float | int | str]:
    """Headline metrics: every system's accuracy on held-out identities, and the model's main ones elsewhere."""
    if result.undefined and not any(result.metrics.values()):
        return {} if result.kind == "held_out" else {f"{result.title}/undefined": result.undefined}
    if result.kind == "held_out":
        accuracies = {f"{system}_accuracy": metrics["accuracy"] for system, metrics in result.metrics.items()}
        return {"pairs": result.counts["pairs"], **accuracies}
    names = ("accuracy",) if "folds" in result.flags else ("tar_at_far_0.0001", "tpir_at_fpir_0.01", "rank_1")
    metrics = result.metrics.get("model", {})
    return {f"{result.title}/{name}": metrics[name] for name in names if name in metrics}
