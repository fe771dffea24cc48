"""The graph of the packages of the core, drawn from their imports of today."""

import html
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import grimp
from markdown_pieces import table
from python_api import packages

Imports = Mapping[str, Mapping[str, int]]
"""For every package, the packages that it imports from, and by how many of its modules' imports."""
WIDTH: Final = 118
NARROW: Final = 8
SWEEPS: Final = 4
HEIGHT: Final = 30
GAP_X: Final = 18
GAP_Y: Final = 44


def read_imports() -> dict[str, dict[str, int]]:
    """Imports between the packages, including those inside functions and those for type checking alone not."""
    graph = grimp.build_graph("gif_core", exclude_type_checking_imports=True, cache_dir=None)
    names = [package.removeprefix("gif_core.") for package in packages()]
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            above, below = (each.split(".")[1] if "." in each else "" for each in (importer, imported))
            if above != below and above in found and below in found:
                found[above][below] = found[above].get(below, 0) + 1
    return found


def reduce(imports: Imports) -> dict[str, set[str]]:
    """Imports that no longer path implies: enough to see what depends on what."""
    reach: dict[str, set[str]] = {}
    for name in reversed(list(imports)):
        reach[name] = set(imports[name]).union(*(reach[below] for below in imports[name]))
    return {
        name: {
            below
            for below in imports[name]
            if not any(below in reach[other] for other in imports[name] if other != below)
        }
        for name in imports
    }


def draw(imports: Imports) -> str:
    """An SVG: a package stands above all that it imports; arrows that others imply are left out."""
    edges = reduce(imports)
    rows, chains = _rows(edges)
    places = _places(rows, chains)
    width = max(sum(map(_width, row)) + GAP_X * (len(row) + 1) for row in rows)
    height = len(rows) * (HEIGHT + GAP_Y) - GAP_Y + 8
    return "\n".join(
        [
            f'<svg class="graph" viewBox="0 0 {width} {height}" role="img" aria-label="Packages and their imports">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker></defs>',
            *(_edge([places[each] for each in chain]) for chain in chains),
            *(_box(name, *places[name]) for name in edges),
            "</svg>",
        ]
    )


def _rows(edges: Mapping[str, set[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Packages by the longest way down, and every arrow as a chain with one empty place in each row that it crosses."""
    depth: dict[str, int] = dict.fromkeys(edges, 0)
    for name in edges:
        for below in edges[name]:
            depth[below] = max(depth[below], depth[name] + 1)
    rows = [[name for name in edges if depth[name] == row] for row in range(max(depth.values()) + 1)]
    chains = []
    for above in edges:
        for below in sorted(edges[above]):
            between = [f"{above}>{below}>{row}" for row in range(depth[above] + 1, depth[below])]
            for name in between:
                rows[int(name.rpartition(">")[2])].append(name)
            chains.append([above, *between, below])
    return rows, chains


def _places(rows: list[list[str]], chains: list[list[str]]) -> dict[str, tuple[float, float]]:
    """The middle of the upper side of everything in a row; rows are sorted by what they are connected to."""
    links = [pair for chain in chains for pair in pairwise(chain)]
    widest = max(sum(map(_width, row)) + GAP_X * (len(row) + 1) for row in rows)
    places: dict[str, tuple[float, float]] = {}
    for order in [range(len(rows)), reversed(range(len(rows)))] * SWEEPS:
        for number in order:
            row = rows[number]
            row.sort(key=lambda name: _middle(name, links, places))
            left = (widest - sum(map(_width, row)) - GAP_X * (len(row) - 1)) / 2
            for name in row:
                places[name] = (left + _width(name) / 2, number * (HEIGHT + GAP_Y) + 4)
                left += _width(name) + GAP_X
    return places


def _middle(name: str, links: list[tuple[str, str]], places: Mapping[str, tuple[float, float]]) -> float:
    """The mean place of what is connected to it."""
    found = [places[other][0] for pair in links if name in pair for other in pair if other != name and other in places]
    return sum(found) / len(found) if found else 0.0


def _width(name: str) -> int:
    return NARROW if ">" in name else WIDTH


def _edge(points: list[tuple[float, float]]) -> str:
    """A curve from the lower side of a box through its empty places to the upper side of another."""
    (x, y), rest = points[0], points[1:]
    path = [f"M{x:.0f} {y + HEIGHT:.0f}"]
    y += HEIGHT
    for number, (x1, y1) in enumerate(rest, 1):
        path.append(f"C{x:.0f} {y + GAP_Y / 2:.0f} {x1:.0f} {y1 - GAP_Y / 2:.0f} {x1:.0f} {y1:.0f}")
        if number < len(rest):
            path.append(f"V{y1 + HEIGHT:.0f}")
        x, y = x1, y1 + HEIGHT
    return f'<path class="edge" d="{"".join(path)}" marker-end="url(#tip)"/>'


def _box(name: str, x: float, y: float) -> str:
    text = f'<text x="{x:.0f}" y="{y + HEIGHT / 2 + 5:.0f}">{html.escape(name)}</text>'
    return f'<rect x="{x - WIDTH / 2:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{text}'


def matrix(imports: Imports) -> str:
    """A table: what each package imports from, and how many imports there are."""
    rows = (
        [f"`{name}`", ", ".join(f"{below} ({count})" for below, count in _sorted(imports[name]))] for name in imports
    )
    return table(("package", "imports from (number of imports)"), rows)


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
