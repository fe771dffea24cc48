"""Curves on logarithmic axes against the number of identities, as a static image or as an interactive page."""

import math

LEFT, TOP, WIDTH, HEIGHT, STEP = 60, 40, 300, 230, 450
"""Size of a panel in the image, and distance between panels."""
Curves = dict[str, dict[str, list[tuple[int, float]]]]
COLOURS = ("#e5534b", "#e8862e", "#a06ee1", "#3b82f6", "#0e7490", "#2da06f")


def draw_page(curves: Curves) -> str:
    """Return a self-contained page."""
    from plotly.subplots import make_subplots

    figure = make_subplots(1, len(curves), subplot_titles=list(curves))
    for column, lines in enumerate(curves.values(), start=1):
        for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
            x, y = zip(*points, strict=True) if points else ((), ())
            figure.add_scatter(x=x, y=y, name=name, line_color=colour, showlegend=column == 1, row=1, col=column)
    figure.update_xaxes(type="log", title="identities").update_yaxes(type="log")
    return str(figure.to_html(include_plotlyjs=True))


def draw_svg(curves: Curves) -> str:
    """Return the image."""
    parts = [Panel(LEFT + number * STEP, title, lines).draw() for number, (title, lines) in enumerate(curves.items())]
    size = f'viewBox="0 0 {LEFT + len(curves) * STEP - 20} {TOP + HEIGHT + 50}"'
    style = 'font-family="sans-serif" font-size="12" fill="#6e7781"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


class Panel:
    """A panel of curves on logarithmic axes."""

    def __init__(self, x0: int, title: str, lines: dict[str, list[tuple[int, float]]]) -> None:
        """Choose axes that span whole decades."""
        self.x0, self.title, self.lines = x0, title, lines
        columns = list(zip(*(point for line in lines.values() for point in line), strict=True))
        self.low = [math.floor(math.log10(min(column))) for column in columns]
        self.high = [math.ceil(math.log10(max(column))) for column in columns]

    def place(self, identities: float, value: float) -> tuple[float, float]:
        """Return the position of a point in the image."""
        logs = zip((math.log10(identities), math.log10(value)), self.low, self.high, strict=True)
        x, y = ((log - low) / (high - low) for log, low, high in logs)
        return self.x0 + WIDTH * x, TOP + HEIGHT * (1 - y)

    def draw(self) -> str:
        """Return title, axes and curves."""
        title = f'<text x="{self.x0}" y="{TOP - 16}" font-weight="600">{self.title}</text>'
        drawn = enumerate(self.lines.items())
        return title + self.axes() + "".join(self.line(number, name, points) for number, (name, points) in drawn)

    def axes(self) -> str:
        """Return a grid line per decade of values and a label per decade of identities."""
        parts, middle = [], self.x0 + WIDTH / 2
        for decade in range(self.low[1], self.high[1] + 1):
            y = self.place(10 ** self.low[0], 10.0**decade)[1]
            parts.append(f'<path d="M{self.x0} {y:.1f}h{WIDTH}" stroke="#8a94a6" stroke-opacity=".3"/>')
            parts.append(f'<text x="{self.x0 - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
        for decade in range(self.low[0], self.high[0] + 1):
            x = self.place(10**decade, 10.0 ** self.low[1])[0]
            label = f"{10**decade // 1000}k" if decade < 6 else f"{10**decade // 10**6}M"
            parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label}</text>')
        return "".join(parts) + f'<text x="{middle}" y="{TOP + HEIGHT + 38}" text-anchor="middle">identities</text>'

    def line(self, number: int, name: str, points: list[tuple[int, float]]) -> str:
        """Return a curve with its points, and its name beside the panel."""
        spots, colour = [self.place(*point) for point in points], COLOURS[number]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots)
        label = f'<text x="{self.x0 + WIDTH + 10}" y="{TOP + 14 + 18 * number}" fill="{colour}">{name}</text>'
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{circles}{label}'
