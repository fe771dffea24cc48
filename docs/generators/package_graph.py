"""The graph of the packages of the core, drawn from their imports of today."""

import html
from collections.abc import Mapping
from typing import Final

import grimp
from markdown_pieces import table
from python_api import packages

Imports = Mapping[str, Mapping[str, int]]
"""For every package, the packages that it imports from, and by how many of its modules' imports."""
WIDTH: Final = 118
HEIGHT: Final = 30
GAP_X: Final = 26
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
    rows = _rows(edges)
    places = _places(rows, edges)
    width = max(len(row) for row in rows) * (WIDTH + GAP_X) + GAP_X
    height = len(rows) * (HEIGHT + GAP_Y)
    lines = [_edge(places[above], places[below]) for above, all_below in edges.items() for below in sorted(all_below)]
    boxes = [_box(name, *place) for name, place in places.items()]
    return "\n".join(
        [
            f'<svg class="graph" viewBox="0 0 {width} {height}" role="img" aria-label="Packages and their imports">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker></defs>',
            *lines,
            *boxes,
            "</svg>",
        ]
    )


def _rows(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Packages by the longest way down from a package that nobody imports."""
    depth: dict[str, int] = dict.fromkeys(edges, 0)
    for name in edges:
        for below in edges[name]:
            depth[below] = max(depth[below], depth[name] + 1)
    return [[name for name in edges if depth[name] == row] for row in range(max(depth.values()) + 1)]


def _places(rows: list[list[str]], edges: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Upper left corners; a row is sorted by where its importers stand."""
    widest = max(len(row) for row in rows)
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        importers = {
            name: [places[above][0] for above in edges if name in edges[above] and above in places] for name in row
        }
        order = sorted(row, key=lambda name: sum(importers[name]) / max(len(importers[name]), 1))
        left = (widest - len(row)) * (WIDTH + GAP_X) / 2 + GAP_X
        for column, name in enumerate(order):
            places[name] = (left + column * (WIDTH + GAP_X), number * (HEIGHT + GAP_Y) + 4)
    return places


def _edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    """A curve from the lower side of a box to the upper side of another; long ones swing around what is between."""
    x0, y0, x1, y1 = above[0] + WIDTH / 2, above[1] + HEIGHT, below[0] + WIDTH / 2, below[1]
    long = y1 - y0 > GAP_Y + 1
    swing = (WIDTH * 0.75 if x1 >= x0 else -WIDTH * 0.75) if long else 0.0
    third = (y1 - y0) / 3
    return (
        f'<path class="edge" d="M{x0:.0f} {y0:.0f}C{x0 + swing:.0f} {y0 + third:.0f} '
        f'{x1 + swing:.0f} {y1 - third:.0f} {x1:.0f} {y1:.0f}" marker-end="url(#tip)"/>'
    )


def _box(name: str, x: float, y: float) -> str:
    text = f'<text x="{x + WIDTH / 2:.0f}" y="{y + HEIGHT / 2 + 5:.0f}">{html.escape(name)}</text>'
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{text}'


def matrix(imports: Imports) -> str:
    """A table: what each package imports from, and how many imports there are."""
    rows = (
        [f"`{name}`", ", ".join(f"{below} ({count})" for below, count in _sorted(imports[name]))] for name in imports
    )
    return table(("package", "imports from (number of imports)"), rows)


def _sorted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
