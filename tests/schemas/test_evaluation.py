import pytest

from schemas.evaluation import EvaluationConfig
from schemas.loading import ConfigError, load_config


def test_held_out_identities_are_the_default() -> None:
    assert [each.title for each in EvaluationConfig().sets] == ["held_out"]


def test_sets_are_called_by_their_label_or_a_name_of_their_own() -> None:
    given = [
        {"kind": "bin", "path": "s3://bucket/sets/agedb_30.bin"},
        {"kind": "lfw", "folder": "lfw", "pairs": "pairs.txt"},
        {"kind": "parquet", "path": "mine.parquet", "label": "my pairs"},
        {"kind": "ijb", "path": "IJBB", "name": "IJB-B"},
        {"kind": "ijb", "path": "IJBB", "name": "IJB-B", "norm": False, "label": "IJB-B without norm"},
        {"kind": "tinyface", "path": "tinyface"},
        {"kind": "synthetic_bin"},
        {"kind": "synthetic_ijb"},
    ]
    titles = [each.title for each in EvaluationConfig.model_validate({"sets": given}).sets]
    assert titles == [
        *("agedb_30", "LFW", "my pairs", "IJB-B", "IJB-B without norm"),
        *("TinyFace", "synthetic-LFW", "synthetic-IJB-C"),
    ]
    kinds = EvaluationConfig.model_json_schema()["properties"]["sets"]["items"]["discriminator"]["mapping"]
    assert {each["kind"] for each in given} | {"held_out"} == set(kinds)


def test_two_sets_of_one_name_are_refused() -> None:
    same = {"kind": "ijb", "path": "IJBC", "name": "IJB-C"}
    with pytest.raises(ConfigError, match="two sets are called 'IJB-C': give one of them another label"):
        load_config({"evaluation": {"sets": [same, same | {"flip": False}]}})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "ijb", "path": "x", "name": "IJB-A"}, r"evaluation\.sets\.0\.name = 'IJB-A': "),
        ({"kind": "ijb", "path": "x", "name": "IJB-B", "flipp": 1}, r"sets\.0\.flipp = 1: .* did you mean 'flip'"),
        ({"kind": "bin", "path": "x", "label": "a/b"}, r"evaluation\.sets\.0\.label = 'a/b'"),
        ({"kind": "binary", "path": "x"}, r"evaluation\.sets\.0 = "),
        ({"kind": "bin", "path": "s3://me:secret@host/x"}, r"sets\.0\.path: an address must not contain credentials"),
    ],
)
def test_an_error_in_a_set_names_its_position(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config({"evaluation": {"sets": [given]}})


def test_a_mistake_in_a_setting_that_is_called_like_a_kind_keeps_its_name() -> None:
    with pytest.raises(ConfigError, match=r"^ingestion\.held_out = 2: "):
        load_config({"ingestion": {"held_out": 2}})
