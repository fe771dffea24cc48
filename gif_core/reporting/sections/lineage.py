"""Sections "Lineage" and "Reproduce": the artifacts of the run, and its configuration."""

import yaml

from gif_core.reporting.sections.inputs import Inputs, Shown
from schemas.run import RunConfig
from schemas.stages import STAGES


def show_artifacts(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the manifests of all artifacts, in the order of the stages."""
    return {"manifests": [inputs[stage].manifest for stage in STAGES if stage in inputs]}


def show_reproduce(config: RunConfig, inputs: Inputs) -> Shown:
    """Show the whole configuration, as a file that `gif run` accepts."""
    settings = config.model_dump(mode="json", exclude={"preset", "store", "execution"})
    return {"yaml": yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}
