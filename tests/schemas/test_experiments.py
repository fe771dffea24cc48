"""Experiments of the paper: every row is a valid configuration, at the paper's size and at the demo's."""

from typing import get_args

import pytest

from gif_core.sweeps import Variant, draw_trials, read_draw, with_drawn
from schemas.experiments import BESIDE, DEMO, EXPERIMENTS, Experiment, Scale, read_experiment
from schemas.loading import load_config
from schemas.training import HeadName


def settings_of(experiment: Experiment, scale: str) -> list[str]:
    if scale == "demo":
        rows = [(DEMO, row.demo_settings or row.settings) for row in experiment.rows_at("demo")]
    else:
        rows = [(row.preset or experiment.preset, row.settings) for row in experiment.rows]
    return [load_config(preset, list(settings)).model_dump_json() for preset, settings in rows]


@pytest.mark.parametrize("scale", ["full", "demo"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_is_a_configuration_of_its_own(name: str, scale: str) -> None:
    configs = settings_of(read_experiment(name), scale)
    assert len(set(configs)) == len(configs)


@pytest.mark.parametrize("scale", ["full", "demo"])
@pytest.mark.parametrize("name", [*EXPERIMENTS, *BESIDE])
def test_no_two_rows_have_runs_of_the_same_name(name: str, scale: Scale) -> None:
    labels = [row.label(scale) for row in read_experiment(name).rows_at(scale)]
    assert len(set(labels)) == len(labels)


def test_runs_are_named_after_training_set_and_backbone_at_the_papers_size_only() -> None:
    rows = {name: read_experiment(name).rows for name in ("table1", "table2")}
    assert [row.label("full") for row in rows["table1"][-3:-1]] == [
        "PartialFC (WebFace42M, ViT-B)",
        "GIF (WebFace42M, ViT-B)",
    ]
    assert rows["table2"][3].label("full") == "DUL (MS1MV2)", "the paper does not name its backbone"
    assert rows["table1"][0].label("demo") == "Virtual FC"


def test_rows_name_the_training_set_of_their_preset_unless_it_is_ms1mv2() -> None:
    rows = [(row.preset or found.preset, row) for found in map(read_experiment, EXPERIMENTS) for row in found.rows]
    for preset, row in rows:
        assert f"/{row.about.get('Train set', 'MS1MV2').lower()}-" in preset, row.name


def test_the_tables_of_rivals_have_a_row_for_every_head_of_the_paper() -> None:
    rows = [row for name in ("table1", "table2") for row in read_experiment(name).rows]
    heads = {override.partition("=")[2] for row in rows for override in row.settings if "head=" in override}
    rivals = {"curricularface", "magface", "broadface", "groupface", "dul", "virtual_fc", "dcq", "f2c"}
    assert rivals | {"gif", "arcface", "cosface", "adaface", "partial_fc"} == heads


def test_experiments_that_train_nothing_say_what_to_measure() -> None:
    for name in EXPERIMENTS:
        found = read_experiment(name)
        assert bool(found.rows) == (found.kind in ("runs", "separation")), name
        assert (found.cost is not None) == (found.kind in ("head_cost", "training_speed", "separation_cost")), name


def test_rows_that_differ_in_dataset_only_are_one_row_of_the_demo() -> None:
    names = [row.name for row in read_experiment("table1").rows_at("demo")]
    assert names == ["Virtual FC", "DCQ", "F²C", "GIF", "PartialFC", "GIF, this project's defaults"]
    assert read_experiment("table1").base_at("demo") == 3


def test_ablations_of_codes_use_the_code_loss_alone_as_the_paper_does() -> None:
    for name in ("figure5d", "figure5ef", "supplement-lambda"):
        for settings in settings_of(read_experiment(name), "full"):
            assert '"gamma":0.0' in settings, name


def test_heads_that_are_tuned_alike_are_all_heads_and_each_takes_what_is_drawn() -> None:
    found = read_experiment("heads")
    assert found.tuning
    drawn = draw_trials([read_draw(each) for each in found.tuning.draws], found.tuning.trials)
    heads, taken = set(), {}
    for row in found.rows_at("demo"):
        tuned = [with_drawn(Variant(row.settings), values) for values in drawn]
        configs = [load_config(DEMO, list(variant.overrides)).training for variant in tuned]
        heads.add(configs[0].head)
        assert [each.learning_rate for each in configs] == [float(values["training.learning_rate"]) for values in drawn]
        taken[row.name] = {
            name for name in configs[0].model_dump() if len({str(getattr(c, name)) for c in configs}) > 1
        }
    assert heads == set(get_args(HeadName))
    rate = {"learning_rate"}
    assert taken.pop("GIF (default)") == rate | {"alignment_scale", "alignment_margin"}, "L_C keeps its own scale"
    assert taken.pop("GIF (as printed)") == rate | {"scale"}
    assert taken.pop("combined margin") == rate | {"scale", "margins"}
    assert set(map(frozenset, taken.values())) == {frozenset(rate | {"scale", "margin"})}


def test_an_unknown_experiment_gets_the_list() -> None:
    with pytest.raises(ValueError, match="known experiments: figure1a, figure1c"):
        read_experiment("table9")
