"""Lazy public faces: a package names what it offers, and a file behind it is imported when something of it is used.

An eager `__init__` would import torch for `gif --help` and for runs whose stages are all cached.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_imports(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package, for what its `if TYPE_CHECKING:` block imports."""

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
    """Names and the modules that they come from."""
    blocks = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If)]
    lazy = [block for block in blocks if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"]
    imports = [node for block in lazy for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports if node.module for alias in node.names}
