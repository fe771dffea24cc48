"""Random trials: the same values for every variant."""

import numpy as np
import pytest

from gif_core.sweeps import Variant, draw_trials, expand, read_draw, read_draws, with_drawn
from schemas.errors import GifError

RATE, MARGIN = read_draw("training.learning_rate=log:0.001:0.1"), read_draw("training.margin=0:0.5")


def test_values_fill_the_range_evenly_or_in_their_logarithm() -> None:
    trials = draw_trials([RATE, MARGIN], 2000)
    rates, margins = (
        np.array([float(trial[name]) for trial in trials]) for name in ("training.learning_rate", "training.margin")
    )
    assert (rates.min() >= 0.001) & (rates.max() <= 0.1)
    assert np.mean(rates < 0.01) == pytest.approx(0.5, abs=0.04), "half of them in each decade"
    assert (margins.min() >= 0) & (margins.max() <= 0.5)
    assert np.mean(margins < 0.25) == pytest.approx(0.5, abs=0.04)
    assert abs(np.corrcoef(np.log(rates), margins)[0, 1]) < 0.1


def test_more_trials_begin_with_the_same_ones() -> None:
    assert draw_trials([RATE, MARGIN], 5)[:3] == draw_trials([RATE, MARGIN], 3)


def test_a_variant_keeps_its_name_and_what_it_sets_itself() -> None:
    drawn = {"training.learning_rate": "0.01", "training.margin": "0.2"}
    given = Variant(("training.head=cosface", "training.margin=0"), preset="demo")
    tuned = with_drawn(given, drawn)
    assert tuned.overrides == ("training.head=cosface", "training.margin=0", "training.learning_rate=0.01")
    assert (tuned.name, tuned.preset) == (given.name, "demo")


def test_a_value_may_say_where_a_drawn_one_goes() -> None:
    sources = "ingestion.sources=[{kind: folder, path: '{data}/faces'}]"
    given = Variant(("training.margins=[1.0, {training.margin}, 0.1]", sources))
    tuned = with_drawn(given, {"training.margin": "0.2"})
    assert tuned.overrides == ("training.margins=[1.0, 0.2, 0.1]", sources), "and is not set as well"
    with pytest.raises(GifError, match=r"\{training.margin\} needs a value"):
        with_drawn(given, {})


@pytest.mark.parametrize(
    "text",
    ["training.margin", "training.margin=0.5", "training.margin=lin:0:1", "x=a:b", "x=0:inf", "x=nan:1", "=0:1"],
)
def test_a_draw_that_cannot_be_read_is_said_with_what_to_write(text: str) -> None:
    with pytest.raises(GifError, match=r"--draw takes stage\.field=low:high"):
        read_draw(text)


@pytest.mark.parametrize("text", ["training.margin=1:0", "training.learning_rate=log:0:1"])
def test_a_range_without_values_is_refused(text: str) -> None:
    with pytest.raises(GifError, match="must be below the second"):
        read_draw(text)


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        (["training.scale=8:64", "training.margin=0:1"], "--draw training.margin: --vary gives its values"),
        (["training.scale=8:64", "training.gamma=0:1", "training.scale=1:2"], "--draw names training.scale twice"),
    ],
)
def test_a_draw_that_would_change_nothing_is_refused(draws: list[str], words: str) -> None:
    variants = expand(["training.margin=0,0.2", "training.head=cosface,arcface"])
    assert [draw.field for draw in read_draws(draws[:1], variants)] == ["training.scale"]
    with pytest.raises(GifError, match=words):
        read_draws(draws, variants)
