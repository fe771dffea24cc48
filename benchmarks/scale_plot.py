"""A picture of quality against the rows of a step, one curve per head."""

import math

from log_plots import COLOURS

LEFT, TOP, WIDTH, HEIGHT = 60, 40, 420, 240


def draw_quality(curves: dict[str, list[tuple[float, float]]], title: str) -> str:
    """Return an SVG image: rows on a logarithmic axis, quality in % on a linear one."""
    rows, quality = zip(*(point for points in curves.values() for point in points), strict=True)
    low, high = math.floor(math.log10(min(rows))), math.ceil(math.log10(max(rows)) + 1e-9)
    floor, top = 5 * math.floor(min(quality) / 5), 5 * math.ceil(max(quality) / 5 + 1e-9)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = (math.log10(point[0]) - low) / (high - low)
        return LEFT + WIDTH * x, TOP + HEIGHT * (top - point[1]) / (top - floor)

    axes = [_grid(place((10.0**low, value))[1], f"{value:g}") for value in range(floor, top + 1, 5)]
    axes += [_tick(place((10.0**decade, floor))[0], f"{10**decade:,}") for decade in range(low, high + 1)]
    lines = [
        _line(number, name, [place(point) for point in points]) for number, (name, points) in enumerate(curves.items())
    ]
    size = f'viewBox="0 0 {LEFT + WIDTH + 180} {TOP + HEIGHT + 50}"'
    names = f'<text x="{LEFT}" y="20" font-weight="600">{title}</text>'
    names += f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">rows of a step</text>'
    style = 'font-family="sans-serif" font-size="12" fill="#6e7781"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{names}{"".join(axes + lines)}</svg>\n'


def _grid(y: float, label: str) -> str:
    line = f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#8a94a6" stroke-opacity=".3"/>'
    return line + f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _tick(x: float, label: str) -> str:
    return f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label}</text>'


def _line(number: int, name: str, spots: list[tuple[float, float]]) -> str:
    colour = COLOURS[number % len(COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in spots)
    label = f'<text x="{LEFT + WIDTH + 12}" y="{TOP + 14 + 18 * number}" fill="{colour}">{name}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{circles}{label}'
