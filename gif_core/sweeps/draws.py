"""Random trials: values drawn for settings, the same for every variant, so that all are tuned alike."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gif_core.sweeps.grid import Variant
from schemas.errors import GifError

DIGITS: Final = 3
"""Significant digits of a drawn value."""
Drawn = Mapping[str, str]
"""A value for every drawn setting, as on the command line."""


@dataclass(frozen=True)
class Draw:
    """A setting, and the range from which its values are drawn evenly, or evenly in their logarithm."""

    field: str
    low: float
    high: float
    is_log: bool

    def draw(self, rng: np.random.Generator) -> str:
        """One value."""
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        value = rng.uniform(low, high)
        return f"{math.exp(value) if self.is_log else value:.{DIGITS}g}"


def read_draw(text: str) -> Draw:
    """`stage.field=low:high` or `stage.field=log:low:high`."""
    field, _, given = text.partition("=")
    kind, *ends = given.split(":") if given.startswith("log:") else ("", *given.split(":"))
    try:
        low, high = map(float, ends)
        if not (field and math.isfinite(low) and math.isfinite(high)):
            raise ValueError
    except ValueError:
        raise GifError(
            "--draw takes stage.field=low:high or stage.field=log:low:high, for instance "
            f"training.learning_rate=log:0.0005:0.01, not {text!r}"
        ) from None
    if low >= high or (kind and low <= 0):
        raise GifError(f"--draw {text}: the first end must be below the second{', and above 0' if kind else ''}")
    return Draw(field, low, high, bool(kind))


def read_draws(texts: Sequence[str], variants: Sequence[Variant]) -> list[Draw]:
    """The draws of a sweep: of every setting once, and of none that its variants set themselves."""
    draws, own = [read_draw(text) for text in texts], {field for each in variants for field in own_settings(each)}
    for number, draw in enumerate(draws):
        if draw.field in own:
            raise GifError(f"--draw {draw.field}: --vary gives its values, so no trial would have a drawn one")
        if draw.field in (each.field for each in draws[:number]):
            raise GifError(f"--draw names {draw.field} twice")
    return draws


def own_settings(variant: Variant) -> set[str]:
    """The settings that a variant has itself."""
    return {each.partition("=")[0] for each in variant.overrides}


def draw_trials(draws: Sequence[Draw], trials: int) -> list[Drawn]:
    """So many values of every setting; the first ones stay the same when more are drawn."""
    rngs = [np.random.default_rng([number, 97]) for number in range(trials)]
    return [{draw.field: draw.draw(rng) for draw in draws} for rng in rngs]


def with_drawn(variant: Variant, drawn: Drawn) -> Variant:
    """The variant with drawn values, and the same name.

    A setting that the variant has itself keeps its value. Where a variant has `{training.margin}` in a value, it gets
    what is drawn for that setting there instead.
    """
    filled = tuple(
        re.sub(r"\{(\w+\.[\w.]+)\}", lambda found: _value(drawn, found[1]), each) for each in variant.overrides
    )
    own = own_settings(variant)
    used = {name for each in variant.overrides for name in re.findall(r"\{(\w+\.[\w.]+)\}", each)}
    added = (f"{field}={value}" for field, value in drawn.items() if field not in own | used)
    return Variant((*filled, *added), variant.name, variant.preset)


def _value(drawn: Drawn, field: str) -> str:
    if field not in drawn:
        raise GifError(f"{{{field}}} needs a value: nothing is drawn for it")
    return drawn[field]
