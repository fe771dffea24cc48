from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas.loading import ConfigError, load_config
from schemas.presets import PRESETS
from schemas.run import RunConfig
from schemas.safe_yaml import parse_yaml

IDENTITIES = {
    "casia": 10_572,
    "ms1mv2": 85_742,
    "ms1mv3": 93_431,
    "glint360k": 360_232,
    "webface4m": 205_990,
    "webface12m": 617_970,
    "webface42m": 2_059_906,
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    assert load_config(name).preset == name


@pytest.mark.parametrize("name", IDENTITIES)
def test_the_paper_presets_have_the_papers_settings(name: str) -> None:
    config = load_config(name)
    training = config.training
    assert (training.backbone, training.optimizer, training.epochs) == ("iresnet100", "sgd", 20)
    assert (training.learning_rate, training.momentum, training.weight_decay) == (0.1, 0.9, 1e-4)
    assert (training.batch_size, training.gamma) == (512, 1.0)
    assert (config.separation.learning_rate, config.separation.epochs) == (0.1, 1000)
    assert (config.separation.batch_size, config.separation.temperature) == (2048, 2.0)
    assert config.tokenization.max_vocab_size == 20
    assert (config.embedding.model, config.embedding.pretrained) == ("ViT-B-32", "openai")
    assert config.ingestion.held_out == 0


@pytest.mark.parametrize("dataset", IDENTITIES)
def test_presets_of_the_paper_as_printed_have_its_method_on_two_networks(dataset: str) -> None:
    usual, residual, vit = load_config(dataset), *(load_config(f"paper/{dataset}-{each}") for each in ("r100", "vit-b"))
    for config in (residual, vit):
        assert config.ingestion == usual.ingestion
        assert (config.separation.recipe, config.separation.target_gap) == ("literal", None)
        assert config.tokenization.alignment == "none"
        training = config.training
        assert (training.head, training.negatives, training.code_vectors) == ("gif", 0, "frozen")
        assert (training.batch_size, training.gamma, training.schedule) == (4096, 1.0, "cosine")
    assert (residual.training.backbone, residual.training.optimizer, residual.training.epochs) == (
        "iresnet100",
        "sgd",
        20,
    )
    assert (vit.training.backbone, vit.training.optimizer, vit.training.epochs) == ("vit_base", "adamw", 40)
    assert (vit.training.learning_rate, vit.training.weight_decay) == (1e-4, 0.1)


def test_sources_and_sets_of_presets_are_in_one_folder_that_is_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, given = load_config("ms1mv2"), load_config("insightface-r100", ["data=s3://bucket/faces/"])
    assert usual.ingestion.sources[0].path == "data/ms1mv2"
    assert given.ingestion.sources[0].path == "s3://bucket/faces/glint360k"
    titles = ["LFW", "CFP-FP", "AgeDB-30", "CALFW", "CPLFW", "IJB-B", "IJB-C", "TinyFace"]
    assert [each.title for each in usual.evaluation.sets] == titles
    assert given.evaluation.sets[0].path == "s3://bucket/faces/lfw.bin"
    monkeypatch.setenv("GIF_DATA", "/faces")
    assert load_config("ms1mv2").evaluation.sets[-1].path == "/faces/tinyface"


def test_presets_of_insightface_have_its_recipe() -> None:
    r50, r100, vit = (load_config(f"insightface-{each}").training for each in ("r50", "r100", "vit-b"))
    for training in (r50, r100, vit):
        assert (training.schedule, training.clip_norm, training.clip_scope) == ("linear", 5.0, "backbone")
        assert (training.precision, training.sync_batch_norm) == ("fp16", False)
    assert (r50.head, r50.margin_of_head, r50.scale_of_head, r50.weight_decay) == ("arcface", 0.5, 64, 5e-4)
    assert (r100.head, r100.margin_of_head, r100.weight_decay, r100.batch_size) == ("cosface", 0.4, 1e-4, 1024)
    assert (vit.sample_rate_of_head, vit.batch_size, vit.accumulation) == (0.3, 24_576, 12)
    assert vit.warmup_steps == 4 * (42_474_557 // vit.batch_size)
    assert load_config("insightface-r50", ["execution.processes=2"]).training.batch_size == 256


def test_a_batch_per_process_needs_the_number_of_processes_and_is_the_same_training() -> None:
    with pytest.raises(ConfigError, match=r"batch_size_per_process needs the number of processes.*execution.processes"):
        load_config("demo", ["training.batch_size_per_process=16"])
    with pytest.raises(ConfigError, match=r"execution.nodes to one number"):
        load_config({"execution": {"processes": 2, "nodes": "1:2"}, "training": {"batch_size_per_process": 16}})
    given = load_config({"execution": {"processes": 2, "nodes": 3}, "training": {"batch_size_per_process": 16}})
    assert given.training.batch_size == 96
    assert given.settings("training") == load_config({"training": {"batch_size": 96}}).settings("training")


@pytest.mark.parametrize("said", [[], ["training.learning_rate=null", "training.weight_decay=null"]])
def test_a_rate_and_a_decay_that_are_not_given_are_the_papers_for_the_optimizer(said: list[str]) -> None:
    training = load_config("ms1mv3", ["training.optimizer=adamw", *said]).training
    assert (training.learning_rate, training.weight_decay) == (1e-4, 0.1)
    assert load_config("demo").training.learning_rate == 0.002, "what is given is kept"


def test_a_file_may_start_from_a_preset_and_change_a_part(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("preset: demo\nseed: 7\ntokenization: {length: 4}\n")
    config, demo = load_config(str(path)), load_config("demo")
    assert (config.seed, config.tokenization.length) == (7, 4)
    assert config.training == demo.training


def test_overrides_go_on_top_in_order_and_reach_into_lists() -> None:
    changes = ["tokenization.length=4", "tokenization.length=5", "ingestion.sources.0.identities=50"]
    config = load_config("demo", changes)
    assert config.tokenization.length == 5
    assert config.ingestion.sources[0].identities == 50  # type: ignore[union-attr]
    assert config.ingestion.sources[0].largest == load_config("demo").ingestion.sources[0].largest  # type: ignore[union-attr]


def test_a_null_override_returns_a_setting_to_its_automatic_value() -> None:
    assert load_config({"tokenization": {"length": 4}}, ["tokenization.length=null"]).tokenization.length is None


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tokenization.lenght=4", ["tokenization.lenght", "= 4", "did you mean 'length'?", "max_vocab_size"]),
        ("tokenization.length=-1", ["tokenization.length", "= -1", "greater than 0"]),
        ("training.seed=4", ["training.seed", "did you mean 'seed' or 'evaluation.seed'?"]),
        ("training.backbone=resnet", ["training.backbone", "'resnet'", "'iresnet100'"]),
        ("training.gamma=.nan", ["training.gamma", "finite number"]),
        ("ingestion.held_out=2", ["ingestion.held_out", "= 2", "less than 1"]),
        ("ingestion.sources.0.identites=5", ["ingestion.sources.0.identites", "did you mean 'identities'?"]),
        ("ingestion.sources.0.kind=video", ["ingestion.sources.0", "'video'", "'synthetic', 'folder'"]),
        ("ingestion.sources.²=1", ["'²' is not a position in a list of 1"]),
        ("ingestion.sources.0={kind: foldr}", ["did you mean 'folder'?", "kind must be one of: 'synthetic'"]),
        ("ingestion.sources=[{path: x}]", ["ingestion.sources.0", "needs a kind: arrow, folder"]),
        ("ingestion.sources={kind: folder}", ["ingestion.sources", "must be a list"]),
        (
            "evaluation.sets=[{kind: bin, path: x, name: y}]",
            ["evaluation.sets.0.name", "known: group, kind, label, optional, path"],
        ),
        ("evaluation.sets=[{kind: ijb, path: x}]", ["evaluation.sets.0.name: this setting is required"]),
        ("training=5", ["training = 5: must be a table of settings"]),
        ("training.backbone=iresnet10", ["did you mean 'iresnet100'?"]),
        ("ingestion.decode_all=perhaps", ["must be true or false"]),
        ("seed=1.5", ["seed = 1.5: must be a whole number"]),
        (f"seed={'9' * 4000}", ["seed = 999", "less than or equal to 9223372036854775807"]),
        ('evaluation.sets=[{kind: bin, path: "\\ud800"}]', ["evaluation.sets.0.path", "can be written as UTF-8"]),
        ("ingestion.sources.3.kind=folder", ["'3' is not a position in a list of 1"]),
        ("toknization.length=4", ["toknization", "did you mean 'tokenization'?"]),
        ("seed=abc", ["seed", "'abc'", "whole number"]),
        ("tokenization.length", ["--set takes stage.field=value", "'tokenization.length'"]),
        ("separation.batch_size=0", ["separation.batch_size", "= 0", "greater than 0"]),
    ],
)
def test_validation_errors_name_the_field_the_value_and_the_allowed_values(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("demo", [override])
    assert all(word in str(caught.value) for word in words), str(caught.value)


PYDANTIC = ("instance of", "Input", "input tag", "discriminator", "valid dictionary", "tuple", "Config")


@pytest.mark.parametrize("value", ["x", "[1]", "{a: 1}", "-1.5"])
def test_no_message_about_a_setting_has_the_words_of_the_validator(value: str) -> None:
    for stage, config in load_config("demo"):
        for field in getattr(type(config), "model_fields", [None]):
            try:
                load_config("demo", [f"{stage}.{field}={value}" if field else f"{stage}={value}"])
            except ConfigError as error:
                message = str(error).replace(repr(value), "")
                assert not [word for word in PYDANTIC if word in message], message


def test_yaml_bombs_end_in_a_sentence(tmp_path: Path) -> None:
    lists = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in pairwise("abcdefghijkl")
    )
    merges = "a: &a {x: 1}\n" + "".join(
        f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in pairwise("abcdefghijkl")
    )
    bombs = {
        lists: "more than 20,000 values",
        merges: "more than 20,000 values",
        "[" * 5000: "more than 40 tables or lists inside each other",
        "a: &a [*a]": "has no anchor before it, or is inside it",
        "seed: 1\nseed: 2": "line 2: 'seed' is set twice",
        "x" * 2**21: "characters",
        "seed: 2020-99-99": "month must be",
    }
    path = tmp_path / "run.yaml"
    for text, words in bombs.items():
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_config(str(path))


def test_aliases_and_merges_of_a_usual_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "preset: demo\ntraining: &base {epochs: 3, gamma: 2}\ntokenization: {length: 2}\nseed: &s 4\n"
        "ingestion: {sources: [{kind: synthetic, seed: *s}]}\n"
    )
    config = load_config(str(path))
    assert (config.training.epochs, config.seed, config.ingestion.sources[0].seed) == (3, 4, 4)  # type: ignore[union-attr]
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}") == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)tokenization\.lenght.*training\.gamma"):
        load_config({"tokenization": {"lenght": 3}, "training": {"gamma": -1}})


def test_overrides_are_checked_together_and_all_their_errors_reported() -> None:
    with pytest.raises(ConfigError, match=r"(?s)training\.epochs = 'x'.*training\.epoch = 3"):
        load_config("demo", ["training.epochs=x", "training.epoch=3"])
    both = ["training.head=groupface", "training.sample_negatives=0"]
    base = {"preset": "demo", "training": {"sample_negatives": 64}}
    for overrides in (both, both[::-1]):
        assert load_config(base, overrides).training.head == "groupface"
    sources = ["ingestion.held_out=2", "ingestion.sources.0.identities=77", "ingestion.held_out=0.1"]
    assert load_config("demo", sources).ingestion.sources[0].identities == 77  # type: ignore[union-attr]


def test_an_unknown_preset_or_file_gets_the_list_of_presets() -> None:
    with pytest.raises(
        ConfigError, match=r"neither a file nor a preset; did you mean 'demo'\? presets are: demo, casia"
    ):
        load_config("dmeo")
    with pytest.raises(ConfigError, match="unknown preset 'dmeo'"):
        load_config({"preset": "dmeo"})


def test_a_file_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("- a list\n")
    with pytest.raises(ConfigError, match="must hold a table of settings"):
        load_config(str(path))
    path.write_text("a: [1\n")
    with pytest.raises(ConfigError, match="is not a YAML file of settings"):
        load_config(str(path))


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    for override in (
        "store=s3://user:secret@bucket/x",
        "ingestion.sources.0={kind: folder, path: 's3://u:secret@b'}",
    ):
        with pytest.raises(ConfigError, match="must not contain credentials") as caught:
            load_config("demo", [override])
        assert "secret" not in str(caught.value)
    for override in ("ingestion.sources.0={kind: foldr, path: 's3://u:secret@b'}", "stor=s3://u:secret@b"):
        with pytest.raises(ConfigError) as caught:
            load_config("demo", [override])
        assert "secret" not in str(caught.value)


def test_credentials_in_the_environments_store_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIF_STORE", "s3://user:secret@bucket/x")
    with pytest.raises(ConfigError, match="must not contain credentials") as caught:
        load_config("demo")
    assert "secret" not in str(caught.value)


def test_a_configuration_cannot_be_changed_after_it_was_checked() -> None:
    config = load_config("demo")
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3  # type: ignore[misc]


def test_device_and_workers_are_in_no_stages_settings() -> None:
    config = load_config("demo", ["execution.device=cpu", "execution.workers=7"])
    other = load_config("demo", ["execution.device=auto", "execution.workers=1"])
    assert all(config.settings(stage) == other.settings(stage) for stage in ("ingestion", "embedding", "training"))


def test_what_no_weight_depends_on_is_in_no_settings_of_training() -> None:
    config, other = load_config("demo"), load_config("demo", ["training.val_pairs=0", "training.max_skipped=99"])
    assert config.settings("training") == other.settings("training")


@pytest.mark.parametrize(
    ("override", "message"),
    [("training.margin=0.3", "training.margins"), ("training.margins=[0.5, 0, 0]", "greater than or equal to 1")],
)
def test_margins_that_combined_margin_cannot_have_are_refused_before_anything_runs(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("demo", ["training.head=combined_margin", override])


def test_a_dump_is_read_back_as_the_same_configuration() -> None:
    config = load_config("demo", ["seed=3"])
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert load_config(config) == config
