"""The messages of the table in docs/operations/running.md are those of the code, word by word."""

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
TABLE = (PROJECT / "docs/operations/running.md").read_text().partition("## Troubleshooting by message")[2]
FOREIGN = {"database is locked", "Concurrency lease renewal failed"}
"""What Prefect says."""
MESSAGES = [
    message
    for row in TABLE.splitlines()
    if row.startswith("| `")
    for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    if message not in FOREIGN
]
GAP = "\0"


def text_of(node: ast.AST) -> str | None:
    """A text of the code; where values are filled in there is a gap."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[.\d]*[sdf]", GAP, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or GAP for part in node.values)
    return None


@pytest.fixture(scope="module")
def texts() -> list[str]:
    layers = ("flows", "tasks", "gif_core", "schemas")
    trees = (ast.parse(path.read_text()) for layer in layers for path in (PROJECT / layer).rglob("*.py"))
    return [text for tree in trees for node in ast.walk(tree) if (text := text_of(node))]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_table_is_one_of_the_code(message: str, texts: list[str]) -> None:
    wanted = ".*".join(re.escape(part) for part in message.split("…"))
    assert any(re.search(wanted, text, re.DOTALL) for text in texts)
