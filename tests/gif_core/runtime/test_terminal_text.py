import pytest

from gif_core.runtime import printable


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Zoë 李 \N{FACE WITH TEARS OF JOY}\tx\ny", "Zoë 李 \N{FACE WITH TEARS OF JOY}\tx\ny"),
        ("\x1b[2J\x07\r\x9b31m\x7f", "\\x1b[2J\\x07\\r\\x9b31m\\x7f"),
        ("anna\u202egpj.exe\u2066", "anna\\u202egpj.exe\\u2066"),
        ("\ud800 \u2028", "\\ud800 \\u2028"),
    ],
)
def test_what_acts_on_a_terminal_is_escaped_and_text_stays(text: str, seen: str) -> None:
    assert printable(text) == seen
    assert printable(seen) == seen
