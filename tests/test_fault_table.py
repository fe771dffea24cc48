"""The table of faults names tests that exist, and says which of them are slow."""

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
ROWS = [line for line in (PROJECT / "docs/operations/faults.md").read_text().splitlines() if line.startswith("| ")][1:]
NAMED = [(row, *match.groups()) for row in ROWS if (match := re.search(r"`(tests/\S+\.py)::(test_\w+)`", row))]


def marks_of(path: Path, name: str) -> str | None:
    """Decorators of a test and marks of its file; None when there is no such test."""
    module = ast.parse(path.read_text())
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            whole = [each for each in module.body if isinstance(each, ast.Assign) and "pytestmark" in ast.unparse(each)]
            return " ".join(map(ast.unparse, [*node.decorator_list, *whole]))
    return None


def test_every_line_of_the_table_names_a_test() -> None:
    assert len(ROWS) > 25
    assert [row for row in ROWS if "::test_" not in row and not row.endswith("| the same |")] == []


@pytest.mark.parametrize(("row", "file", "name"), NAMED, ids=[each[2] for each in NAMED])
def test_a_fault_has_its_test(row: str, file: str, name: str) -> None:
    marks = marks_of(PROJECT / file, name)
    assert marks is not None
    assert ("slow" in marks) == ("*slow*" in row)
