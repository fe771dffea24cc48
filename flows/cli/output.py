"""The console of all commands: whatever labels, paths and errors contain, only visible text reaches the terminal."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

from gif_core.runtime import printable
from schemas.addresses import hide_credentials


class Console(console.Console):
    """A rich console that escapes controls in the text it renders; colours of its own stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a cell, escaped before its width is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render to segments of visible text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def say(title: str, style: str, text: str) -> None:
    """Print a line on stderr, without credentials."""
    Console(stderr=True).print(Text.assemble((title, style), hide_credentials(text)), soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    say("note: ", "bold yellow", text)
