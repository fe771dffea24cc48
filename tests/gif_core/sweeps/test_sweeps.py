"""Variants of a sweep, and what their differences are worth."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gif_core.reporting import ScoredRun
from gif_core.sweeps import expand, summarise, write_page
from schemas.errors import GifError


def run(scores: Mapping[str, Mapping[str, float]]) -> ScoredRun:
    return cast(Any, SimpleNamespace(scores=scores))


def test_all_combinations_are_variants_and_brackets_keep_their_commas() -> None:
    found = expand(["training.head=gif,cosface", "training.drops=[0.5, 0.75],[0.9]"])
    assert [variant.overrides for variant in found] == [
        ("training.head=gif", "training.drops=[0.5, 0.75]"),
        ("training.head=gif", "training.drops=[0.9]"),
        ("training.head=cosface", "training.drops=[0.5, 0.75]"),
        ("training.head=cosface", "training.drops=[0.9]"),
    ]
    assert found[-1].name == "cosface, drops=[0.9]"
    assert found[0].with_seed(3)[-1] == "seed=3"


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ([], "needs a setting to vary"),
        (["training.head"], "takes stage.field=value,value"),
        (["training.gamma=1", "training.gamma=3"], "names training.gamma twice"),
    ],
)
def test_mistakes_are_said_with_what_to_write(vary: list[str], message: str) -> None:
    with pytest.raises(GifError, match=message):
        expand(vary)


def test_differences_are_paired_by_seed_and_have_standard_errors() -> None:
    runs = [
        {0: run({"LFW": {"accuracy": 0.90}}), 1: run({"LFW": {"accuracy": 0.94}}), 2: run({"LFW": {"accuracy": 0.92}})},
        {0: run({"LFW": {"accuracy": 0.91}}), 1: run({"LFW": {"accuracy": 0.96}})},
        {},
    ]
    (section,) = summarise(["gif", "cosface", "failed"], runs, [{}, {("LFW", "accuracy"): 0.003}, {}])
    first, second = section.lines
    assert (first.seeds, first.mean, first.difference) == (3, pytest.approx(0.92), None)
    assert first.deviation == pytest.approx(0.02)
    assert second.difference == pytest.approx((0.01 + 0.02) / 2), "over the seeds that both have"
    assert second.seed_error == pytest.approx(0.005)
    assert second.identity_error == 0.003


def test_one_seed_has_a_difference_without_an_error(tmp_path: Path) -> None:
    runs = [{0: run({"IJB-C": {"tar_at_far_0.0001": 0.5}})}, {0: run({"IJB-C": {"tar_at_far_0.0001": 0.75}})}]
    sections = summarise(["a", "b"], runs)
    line = sections[0].lines[1]
    assert (line.difference, line.seed_error, line.deviation) == (0.25, None, None)
    write_page(tmp_path / "page.html", sections, "gif sweep --vary a=<b>")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<td>+25.00" in page
    assert page.count("<circle") == 2
