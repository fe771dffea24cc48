"""The page of the Python API: the public face of every package, read from the source without importing it."""

import ast
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

from markdown_pieces import code, table

PROJECT = Path(__file__).parents[2]
FIRST = {
    "gif_core.recognition": ["Recognizer"],
    "gif_core.artifacts": ["ArtifactStore", "Artifact"],
    "flows.pipeline": ["gif"],
    "schemas.loading": ["load_config"],
}
"""What notebooks and services use; described whole."""
BREAK = "\n    "
OURS = ("gif_core.", "schemas.", "flows.", "tasks.")
INTRODUCTION = """# Python API

Generated from the source. The first part is what notebooks and services use; the second lists the public face of every
package of the core. Other packages, and you, import from the face (`from gif_core.tokenization import CodeShape`); a
file is imported when something of it is used, so that importing a face costs nothing.

```python
from gif_core.artifacts import ArtifactStore
from gif_core.recognition import Recognizer
from flows.pipeline import gif

gif("demo")                                             # run the pipeline, or reuse what is stored
store = ArtifactStore("artifacts")
print(store.sql("SELECT label, code FROM codes LIMIT 5"))
recognizer = Recognizer.load(store)  # the champion, or the newest run's model
```
"""


def page() -> str:
    """The whole page."""
    described = [_describe(module, name) for module, names in FIRST.items() for name in names]
    faces = [_face(package) for package in packages()]
    return "\n".join([INTRODUCTION, *filter(None, described), "## The packages of the core\n", *faces])


def packages() -> list[str]:
    """Packages of the core in the order of their layers, top first."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in settings if each.get("containers") == ["gif_core"])
    return [f"gif_core.{name.strip()}" for layer in layers for name in layer.split("|")]


def _describe(module: str, name: str) -> str | None:
    """A class with its public methods, or a function."""
    found = _find(module, name)
    if found is None:
        return None
    path, node = found
    about = f"## {name}\n\n`from {module} import {name}`, defined in `{path.relative_to(PROJECT)}`.\n\n"
    if isinstance(node, ast.FunctionDef):
        return about + f"```python\n{_signature(node)}\n```\n\n{_doc(node)}\n"
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and _is_public(each)]
    parts = [f"```python\n{_signature(each)}\n```\n\n{_doc(each)}\n" for each in methods]
    return about + "\n".join([_doc(node) + "\n", *parts])


def _is_public(node: ast.FunctionDef) -> bool:
    return not node.name.startswith("_") or (node.name == "__init__" and len(node.args.args) > 1)


def _face(package: str) -> str:
    init = _init(package)
    doc = (ast.get_docstring(ast.parse(init.read_text("utf-8"))) or "").splitlines()[0]
    rows = [[code(name), _kind(package, name), _first_line(package, name)] for name in _exported(init)]
    return f"### {package}\n\n{doc}\n\n{table(('name', 'kind', 'what it is'), rows)}"


def _exported(init: Path) -> list[str]:
    for node in ast.parse(init.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    return []


def _kind(package: str, name: str) -> str:
    found = _find(package, name)
    kinds = {ast.ClassDef: "class", ast.FunctionDef: "function"}
    return kinds.get(type(found[1]), "value") if found else "value"


def _first_line(package: str, name: str) -> str:
    found = _find(package, name)
    return _doc(found[1]).splitlines()[0] if found and _doc(found[1]) else ""


def _doc(node: ast.AST) -> str:
    doc = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else ""
    return inspect.cleandoc(doc or "")


def _signature(node: ast.FunctionDef) -> str:
    decorators = [
        f"@{name}\n" for each in node.decorator_list if (name := ast.unparse(each)) in {"classmethod", "property"}
    ]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = _arguments(node.args)
    line = f"def {node.name}({', '.join(arguments)}){returns}"
    if len(line) > 100:
        line = f"def {node.name}(\n    {f',{BREAK}'.join(arguments)},\n){returns}"
    return "".join([*decorators, line])


def _arguments(arguments: ast.arguments) -> list[str]:
    """The arguments as they are written."""
    names = [*arguments.posonlyargs, *arguments.args]
    blanks: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    lines = [_argument(name, default) for name, default in zip(names, blanks + list(arguments.defaults), strict=True)]
    lines += [f"*{ast.unparse(arguments.vararg)}"] if arguments.vararg else (["*"] if arguments.kwonlyargs else [])
    lines += [_argument(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return lines


def _argument(name: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(name) + (f" = {ast.unparse(default)}" if default else "")


def _find(module: str, name: str) -> tuple[Path, ast.ClassDef | ast.FunctionDef] | None:
    """Where a name that a module offers is defined."""
    path = _init(module)
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return path, node
    return next(_follow(tree, name), None)


def _follow(tree: ast.Module, name: str) -> Iterator[tuple[Path, ast.ClassDef | ast.FunctionDef]]:
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.ImportFrom)
            or node.module is None
            or name not in {each.name for each in node.names}
        ):
            continue
        if node.module.startswith(OURS) and (found := _find(node.module, name)):
            yield found


def _init(module: str) -> Path:
    path = PROJECT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
