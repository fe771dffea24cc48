"""Lazy imports of package faces: a module behind an `__init__.py` is imported when a name of it is first used.

Eager imports would load torch for `gif --help` and for runs whose stages are all cached.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_imports(package: str) -> Callable[[str], Any]:
    """A module `__getattr__` for the names that the package's `if TYPE_CHECKING:` block imports."""

    @cache
    def sources() -> dict[str, str]:
        return _type_checking_imports(Path(sys.modules[package].__file__ or ""))

    def load(name: str) -> Any:
        if name not in sources():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(sources()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def _type_checking_imports(path: Path) -> dict[str, str]:
    """The imported names and the modules that define them."""
    blocks = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If)]
    lazy = [block for block in blocks if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"]
    imports = [node for block in lazy for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports if node.module for alias in node.names}
