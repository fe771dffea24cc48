"""Small pieces of Markdown that the generated pages share."""

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Text that may stand in a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; empty text if there are no rows."""
    lines = [" | ".join(map(cell, row)) for row in rows]
    if not lines:
        return ""
    return "\n".join(f"| {line} |" for line in [" | ".join(head), " | ".join("---" for _ in head), *lines]) + "\n"


def code(text: object) -> str:
    """Text in the font of code."""
    return f"`{text}`" if str(text) else ""
