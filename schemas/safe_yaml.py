"""Reading YAML from outside: plain values only, and the size of what it stands for is known before it is built.

A few lines of aliases can stand for billions of values, and nested brackets exhaust the stack. So the parser's events
are counted first, with every alias as large as what it stands for. A key that occurs twice is an error.
"""

from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

LONGEST: Final = 2**20
"""Characters of a file."""
DEEPEST: Final = 40
"""Tables and lists inside each other."""
MOST: Final = 20_000
"""Values, with aliases written out."""


class UnsafeYamlError(ValueError):
    """YAML that is damaged, too large or ambiguous; the message says where."""


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, of plain types; UnsafeYamlError if it is not well-formed or not small."""
    if len(text) > LONGEST:
        raise UnsafeYamlError(f"it has {len(text):,} characters; a configuration has at most {LONGEST:,}")
    try:
        _count(text)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated_keys(node, set())
        return loader.construct_document(node)
    except UnsafeYamlError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise UnsafeYamlError(str(error)) from None


def _count(text: str) -> None:
    """Raise if the text nests too deeply or stands for too many values."""
    total, anchors = 0, dict[str, int]()
    opened: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, yaml.SafeLoader):
        name = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            total += _size_of(name, anchors, event)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            anchors |= {name: 1} if name else {}
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((name, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = opened.pop()
            anchors |= {name: total - before} if name else {}
        if len(opened) > DEEPEST:
            raise UnsafeYamlError(f"line {_line(event)}: more than {DEEPEST} tables or lists inside each other")
        if total > MOST:
            raise UnsafeYamlError(f"line {_line(event)}: with its aliases written out it has more than {MOST:,} values")


def _size_of(name: str | None, anchors: dict[str, int], event: yaml.Event) -> int:
    if name not in anchors:
        raise UnsafeYamlError(f"line {_line(event)}: the alias *{name} has no anchor before it, or is inside it")
    return anchors[name]


def _refuse_repeated_keys(node: Node, seen: set[int]) -> None:
    """Raise if a table has a key twice; keys that a merge brings in may be set again."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, SequenceNode):
        for child in node.value:
            _refuse_repeated_keys(child, seen)
    if isinstance(node, MappingNode):
        keys = set()
        for key, child in node.value:
            if isinstance(key, ScalarNode):
                if (key.tag, key.value) in keys:
                    raise UnsafeYamlError(f"line {key.start_mark.line + 1}: {key.value!r} is set twice in one table")
                keys.add((key.tag, key.value))
            _refuse_repeated_keys(child, seen)


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 1
