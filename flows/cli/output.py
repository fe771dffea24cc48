"""The console of all commands: whatever labels, paths and errors contain, only visible text reaches the terminal."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

from gif_core.runtime import printable


class Console(console.Console):
    """A rich console that escapes controls in the text it renders; colours of its own stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a cell, escaped before its width is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render to segments of visible text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
