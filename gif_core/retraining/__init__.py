"""Retraining: new data, a challenger, and the rule that decides whether it becomes champion.

bootstrap  How far the metrics of two models may differ by chance: a paired bootstrap over the identities of a set
champions  Who is champion: an append-only history of decisions, `decisions/<tag>/<number>.json`, and the tag that fo...
policy     What a retraining has to do: is there anything new, are codes extended or made anew, where does training s...
promotion  Is the challenger better than the champion? Their metrics on the same sets, and the rule that decides
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "Champion",
    "challenger_config",
    "check_separation",
    "choose_codes",
    "compare",
    "enter_first",
    "enter_verdict",
    "extend_codes",
    "find_verdict",
    "judge",
    "open_champion",
    "promote",
    "roll_back",
    "sources_now",
]

if TYPE_CHECKING:
    from gif_core.retraining.champions import enter_first, enter_verdict, promote, roll_back
    from gif_core.retraining.policy import (
        Champion,
        challenger_config,
        check_separation,
        choose_codes,
        extend_codes,
        find_verdict,
        open_champion,
        sources_now,
    )
    from gif_core.retraining.promotion import compare, judge
else:
    __getattr__ = lazy_imports(__name__)
