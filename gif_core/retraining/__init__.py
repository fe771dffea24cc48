"""Retraining: is there new data, how is a challenger trained, and does it replace the champion?

policy     Before training: is anything new, are codes extended or rebuilt, is the challenger fine-tuned
promotion  The rule that promotes a challenger (`should_promote`), the comparison behind it, and `decide`
bootstrap  The interval of each metric difference: a paired bootstrap over the identities of a set
champions  Records decisions and moves the tag: first champion, verdict, promotion by hand, rollback
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "Champion",
    "NotComparableError",
    "challenger_config",
    "check_separation",
    "choose_codes",
    "compare",
    "current_ingestion",
    "decide",
    "extend_codes",
    "find_earlier_verdict",
    "open_champion",
    "promote",
    "record_first",
    "record_verdict",
    "roll_back",
    "should_promote",
]

if TYPE_CHECKING:
    from gif_core.retraining.champions import promote, record_first, record_verdict, roll_back
    from gif_core.retraining.policy import (
        Champion,
        challenger_config,
        check_separation,
        choose_codes,
        current_ingestion,
        extend_codes,
        find_earlier_verdict,
        open_champion,
    )
    from gif_core.retraining.promotion import NotComparableError, compare, decide, should_promote
else:
    __getattr__ = lazy_imports(__name__)
