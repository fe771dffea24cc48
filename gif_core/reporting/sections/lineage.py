"""Sections "Lineage" and "Reproduce": the artifacts of the run, and its configuration."""

from collections.abc import Iterable

import yaml

from gif_core.reporting.sections.inputs import Inputs, Shown
from schemas.artifacts import Environment, Manifest
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName


def show_artifacts(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the manifests of all artifacts, in the order of the stages, and where they were made."""
    manifests = [inputs[stage].manifest for stage in STAGES if stage in inputs]
    used = any(manifest.gpu_seconds for manifest in manifests)
    return {"manifests": manifests, "environments": group_environments(manifests), "gpus": used}


def group_environments(manifests: Iterable[Manifest]) -> list[tuple[list[StageName], Environment]]:
    """The environments of artifacts, each with the stages that were made in it."""
    found: list[tuple[list[StageName], Environment]] = []
    for manifest in manifests:
        if manifest.environment is None:
            continue
        alike = next((stages for stages, known in found if known == manifest.environment), None)
        if alike is None:
            found.append(([manifest.stage], manifest.environment))
        else:
            alike.append(manifest.stage)
    return found


def show_reproduce(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the whole configuration, as a file that `gif run` accepts."""
    settings = config.model_dump(mode="json", exclude={"preset", "store", "execution"})
    return {"yaml": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}
