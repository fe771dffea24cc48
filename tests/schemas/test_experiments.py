"""Experiments of the paper: every row is a valid configuration, at the paper's size and at the demo's."""

import pytest

from schemas.experiments import EXPERIMENTS, read_experiment
from schemas.loading import load_config


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_variant_is_a_configuration_of_its_own(name: str) -> None:
    experiment = read_experiment(name)
    for preset in (experiment.preset, "demo"):
        configs = [load_config(preset, list(settings)) for settings in experiment.variants.values()]
        assert len({config.model_dump_json() for config in configs}) == len(configs), preset


def test_the_table_of_rivals_has_a_row_for_every_head_of_the_paper() -> None:
    rows = read_experiment("table2").variants
    heads = {override.partition("=")[2] for settings in rows.values() for override in settings}
    rivals = {"curricularface", "magface", "broadface", "groupface", "dul", "virtual_fc", "dcq", "f2c"}
    assert rivals | {"gif", "arcface", "cosface", "adaface", "partial_fc"} == heads


def test_an_unknown_experiment_gets_the_list() -> None:
    with pytest.raises(ValueError, match="known experiments: table2, figure5c"):
        read_experiment("table9")
