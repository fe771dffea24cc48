"""Numbers, sizes, durations, dates and metric names as text."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

LARGEST_COUNT: Final = 1e15


def thousands(number: float) -> str:
    """A whole number with thousands separators, such as `12,590`."""
    return f"{number:,.0f}"


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun, such as `1 image` or `2,000 images`; `several` is the plural where it is not one + s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def percent(share: float) -> str:
    """A share as a percentage with two decimals, such as `98.21%`."""
    return f"{share:.2%}"


def decimal(number: float, digits: int = 3) -> str:
    """A number with `digits` decimals; a rounded zero has no sign."""
    return f"{round(number, digits) + 0.0:,.{digits}f}"


def duration(seconds: float) -> str:
    """A duration in its two largest units, such as `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes_left:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def size(num_bytes: float) -> str:
    """A number of bytes in a suitable unit, such as `4.2 MB`."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} PB"


def parse_size(text: str, name: str) -> int:
    """Parse a size such as `50 GB` to bytes; `name` is the setting, for the error message."""
    given = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)B?\s*", text)
    if not given:
        raise ValueError(f"{name} must be a size such as 50GB, 800 MB or a number of bytes, not {text!r}")
    return int(float(given[1]) * 1000 ** " kMGT".index(given[2] or " "))


def parse_count(text: str, name: str) -> int:
    """Parse a number such as `42000000`, `42,000,000` or `4.2e7`; `name` is the option, for the error message."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        number = -1.0
    if not 1 <= number <= LARGEST_COUNT or number != int(number):
        raise ValueError(f"{name} must be a whole number such as 10000 or 4.2e7, not {text!r}")
    return int(number)


def moment(when: datetime) -> str:
    """A point in time, such as `3 March 2026, 14:05 UTC`."""
    when = when.astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def plain_name(name: str) -> str:
    """An identifier as words: `raw_pixels` becomes `Raw pixels`."""
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def metric_name(name: str) -> str:
    """A metric's name for display: `tar_at_far_0.0001` becomes `TAR at FAR 0.01%`."""
    for rate in ("tar_at_far", "tpir_at_fpir", "fnir_at_fpir"):
        if name.startswith(f"{rate}_"):
            what, at = rate.upper().split("_AT_")
            return f"{what} at {at} {100 * float(name.removeprefix(f'{rate}_')):g}%"
    if name.startswith("threshold_"):
        return f"{name.removeprefix('threshold_').upper()} at threshold"
    return plain_name(name)


def flag_words(flags: Mapping[str, object]) -> list[str]:
    """Flags as words: `{"flip": False, "folds": 10}` becomes `no flip` and `10 folds`."""
    names = {name: name.replace("_", " ") for name in flags}
    return [
        f"{'' if value else 'no '}{names[name]}" if isinstance(value, bool) else f"{value} {names[name]}"
        for name, value in flags.items()
    ]


def set_name(title: str) -> str:
    """An evaluation set's name for display: `held_out` becomes `Held out`, other titles stay."""
    return plain_name(title) if title == "held_out" else title
