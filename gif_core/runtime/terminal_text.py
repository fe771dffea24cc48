"""Text from outside on its way to a terminal: what would act on the terminal instead of being seen is escaped."""

import re
from typing import Final

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but not tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of text
    "\u2028\u2029\ufff9-\ufffb"  # lines and annotations
    "\ud800-\udfff]"  # lone surrogates
)
"""Characters that move the cursor, change colours, reorder text, or cannot be encoded."""


def printable(text: str) -> str:
    """The text with controls, bidirectional controls and lone surrogates escaped as Python writes them."""
    return UNSEEN.sub(lambda found: ascii(found.group())[1:-1], text)
