"""The report's figures: plain arrays in, a plotly figure out.

Text and grid have no colours here: the page sets them for the reader's colour scheme.
"""

# Shapes: N identities, L levels, B bins.

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

MOST_POINTS: Final = 500
COLOURS: Final = ("#3b82f6", "#e8862e", "#22a06b", "#a06ee1", "#e5534b", "#14a3b8", "#b58900")
GREY: Final = "#8a94a6"
ROOT: Final = "all"
TREE_COLOURS: Final = ((0.0, "#6b88c9"), (1.0, "#1b3fae"))
"""From an empty to a full node; white text is readable on both."""
WITHOUT_LEGEND: Final = 14
"""Space above a figure without legend, in pixels."""


class Curve(NamedTuple):
    """Values over positions such as steps or epochs."""

    x: NDArray[Any]
    y: NDArray[Any]


def draw_roc(curves: Mapping[str, Curve]) -> go.Figure:
    """Draw TAR against FAR, with FAR on a log axis."""
    figure = _new_figure("False accept rate", "True accept rate")
    for name, curve in curves.items():
        figure.add_scatter(x=curve.x[curve.x > 0], y=curve.y[curve.x > 0], name=name)
    lowest = min(float(trace.x.min()) for trace in figure.data)
    chance = np.geomspace(lowest, 1, 60)
    figure.add_scatter(x=chance, y=chance, name="Chance", line={"color": GREY, "dash": "dot", "width": 1.5})
    figure.update_xaxes(type="log", range=[np.log10(lowest), 0.01], tickformat=".3~%", dtick=1)
    return figure.update_yaxes(range=[0, 1.02], tickformat=".0%")


def draw_sample_counts(counts_N: NDArray[np.integer[Any]]) -> go.Figure:
    """Draw the number of images per identity, in descending order."""
    ranked = np.sort(counts_N)[::-1]
    curve = thin(Curve(np.arange(1, len(ranked) + 1), ranked))
    figure = _new_figure("Identities by number of images", "Images of the identity")
    figure.add_scatter(x=curve.x, y=curve.y, name="Images", mode="lines", fill="tozeroy", line_shape="hv")
    figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    figure.update_xaxes(tickformat=",d")
    return figure.update_yaxes(rangemode="tozero", tickformat=",d")


def draw_separation(gap: Curve, kept: Mapping[str, Curve]) -> go.Figure:
    """Draw the gap to the uniform limit and the structure kept, over epochs."""
    figure = _new_figure("Epoch", "Gap to the uniform limit")
    gap = thin(gap)
    figure.add_scatter(x=gap.x, y=gap.y, name="Gap (left)", mode="lines")
    for name, curve in kept.items():
        figure.add_scatter(x=curve.x, y=curve.y, name=f"{name} (right)", yaxis="y2", mode="lines+markers")
    right = {"overlaying": "y", "side": "right", "range": [0, 1.04], "tickformat": ".0%", "showgrid": False}
    figure.update_layout(yaxis2=right | {"tickmode": "linear", "dtick": 0.25, "automargin": True})
    return figure.update_layout(yaxis_rangemode="tozero")


def draw_trade_off(gap: NDArray[np.float64], kept: NDArray[np.float64], epochs: Sequence[int]) -> go.Figure:
    """Draw what closing the gap costs: neighbours kept against the gap, one point per measured epoch."""
    figure = _new_figure("Gap to the uniform limit", "Neighbours kept")
    figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND, margin_r=40)
    if (gap > 0).all():
        figure.update_xaxes(type="log", tickvals=_log_ticks(gap.min(), gap.max()), tickformat="~g")
    position = np.log10(gap) if (gap > 0).all() else gap
    figure.add_scatter(
        x=gap,
        y=kept,
        customdata=epochs,
        text=_label_epochs(position, kept, epochs),
        textposition=[*["top right"] * (len(epochs) - 1), "bottom left" if kept[-1] > 0.15 else "top center"],
        cliponaxis=False,
        mode="lines+markers+text",
        hovertemplate="epoch %{customdata:,}<br>gap %{x:.4f}<br>kept %{y:.2%}<extra></extra>",
    )
    ring = {"symbol": "circle-open", "size": 14, "color": COLOURS[1], "line": {"width": 3}}
    figure.add_scatter(x=gap[-1:], y=kept[-1:], mode="markers", marker=ring, cliponaxis=False, hoverinfo="skip")
    figure.update_xaxes(autorange="reversed")
    return figure.update_yaxes(range=[0, 1.15], tickformat=".0%", dtick=0.25)


def draw_distances(edges: NDArray[np.float64], before: NDArray[np.float64], after: NDArray[np.float64]) -> go.Figure:
    """Draw the histogram of pairwise cosine distances before and after separation."""
    figure = _new_figure("Cosine distance of two identities", "Share of all pairs")
    width = float(edges[1] - edges[0])
    taken = np.flatnonzero(before + after)
    shown = slice(max(0, taken[0] - 1), taken[-1] + 2)
    for name, counts, colour in (("Before", before, COLOURS[1]), ("After", after, COLOURS[0])):
        figure.add_scatter(
            x=edges[shown] + width / 2,
            y=counts[shown] / max(1, counts.sum()),
            name=name,
            mode="lines",
            line={"shape": "hvh", "color": colour, "width": 1.5},
            fill="tozeroy",
            hovertemplate="distance %{x:.2f}<br>%{y:.2%} of the pairs<extra></extra>",
        )
    figure.update_xaxes(nticks=8)
    return figure.update_yaxes(tickformat=".1~%", rangemode="tozero")


def draw_together(levels: Sequence[int], together: Sequence[float], random: Sequence[float]) -> go.Figure:
    """Draw how often nearest neighbours share the first tokens of their codes, against random codes."""
    figure = _new_figure("Length of the common prefix", "Nearest neighbours with a common prefix")
    names = [f"{level} token{'s' if level > 1 else ''}" for level in levels]
    bars = (("These codes", together, COLOURS[0]), ("Random codes", random, GREY))
    for name, shares, colour in bars:
        figure.add_bar(
            x=names,
            y=shares,
            name=name,
            marker_color=colour,
            text=[f"{share:.1%}" if share >= 0.001 else f"{share:.1g}" for share in shares],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: %{y:.3%}<extra></extra>",
        )
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def draw_tree(prefixes: Sequence[Sequence[int]], sizes: Sequence[int], capacities: Sequence[int]) -> go.Figure:
    """Draw the code tree as an icicle chart that a click expands; the first node is the root."""
    ids = [name_node(prefix) for prefix in prefixes]
    figure = _new_figure("", "")
    figure.add_icicle(
        ids=ids,
        labels=["All", *(str(prefix[-1]) for prefix in prefixes[1:])],
        parents=["", *(name_node(prefix[:-1]) for prefix in prefixes[1:])],
        values=sizes,
        customdata=[[name or "all identities", capacity] for name, capacity in zip(ids, capacities, strict=True)],
        branchvalues="total",
        maxdepth=3,
        sort=False,
        tiling={"orientation": "v", "pad": 0},
        pathbar={"thickness": 24, "textfont": {"color": "white"}},
        textfont={"color": "white"},
        marker={
            "colors": [size / capacity for size, capacity in zip(sizes, capacities, strict=True)],
            "colorscale": TREE_COLOURS,
            "cmin": 0,
            "cmax": 1,
            "line": {"width": 0.6, "color": "rgba(255,255,255,0.6)"},
        },
        hovertemplate="%{customdata[0]}: %{value:,} identities<br>%{color:.0%} of %{customdata[1]:,} codes"
        "<extra></extra>",
    )
    return figure.update_layout(margin={"l": 0, "r": 0, "t": 30, "b": 0}, uniformtext={"minsize": 10, "mode": "hide"})


def name_node(prefix: Sequence[int]) -> str:
    """Return the name of a node, such as 3.17; the root is `all`."""
    return ".".join(map(str, prefix)) or ROOT


def draw_fill(shares_LB: Mapping[int, NDArray[np.float64]]) -> go.Figure:
    """Draw how full the clusters of each level are: the share of clusters in each of B equal bins of occupancy."""
    figure = _new_figure("Seats taken", "Clusters of the level")
    for level, shares_B in shares_LB.items():
        edges = np.linspace(0, 1, len(shares_B) + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        figure.add_bar(x=middle, y=shares_B, name=f"Level {level}")
    figure.update_xaxes(range=[-0.01, 1.01], tickformat=".0%", dtick=0.25)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def draw_curves(curves: Mapping[str, Curve], label: str, *, share: bool = False) -> go.Figure:
    """Draw curves of the training over its steps, lightly smoothed."""
    figure = _new_figure("Step", label)
    for name, curve in curves.items():
        shown = thin(Curve(curve.x, smooth(curve.y, max(1, len(curve.y) // 50))))
        figure.add_scatter(x=shown.x, y=shown.y, name=name)
    if len(curves) == 1:
        figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    figure.update_xaxes(tickformat=",d")
    figure.update_yaxes(rangemode="tozero")
    return figure.update_yaxes(tickformat=".0%") if share else figure


def draw_points(curves: Mapping[str, Curve], label: str) -> go.Figure:
    """Draw shares that were measured at some steps, without smoothing."""
    figure = _new_figure("Step", label)
    for name, curve in curves.items():
        figure.add_scatter(x=curve.x, y=curve.y, name=name, mode="lines+markers")
    if len(curves) == 1:
        figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    figure.update_xaxes(tickformat=",d", rangemode="tozero")
    return figure.update_yaxes(tickformat=".1~%")


def draw_cmc(curves: Mapping[str, Curve]) -> go.Figure:
    """Draw the share of probes whose subject is among the first k results (CMC)."""
    figure = _new_figure("Rank", "Probes found")
    for name, curve in curves.items():
        figure.add_scatter(x=curve.x, y=curve.y, name=name, mode="lines+markers")
    if len(curves) == 1:
        figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    longest = max(len(curve.x) for curve in curves.values())
    lowest = min(float(np.min(curve.y)) for curve in curves.values())
    figure.update_xaxes(tickformat=",d", dtick=max(1, round(longest / 10)), tick0=1)
    return figure.update_yaxes(tickformat=".1~%", range=[max(0.0, 1.2 * lowest - 0.25), 1.01])


def draw_head_cost(
    identities: Sequence[int], curves: Mapping[str, Sequence[float]], here: tuple[int, float]
) -> go.Figure:
    """Draw the memory of heads against the number of identities, on log axes, with a ring at this run."""
    figure = _new_figure("Identities", "Memory of a step")
    for (name, values), colour in zip(curves.items(), (COLOURS[4], COLOURS[1], COLOURS[0]), strict=True):
        figure.add_scatter(
            x=identities,
            y=values,
            name=name,
            mode="lines",
            line_color=colour,
            hovertemplate="%{x:,d} identities: %{y:.3s}B<extra></extra>",
        )
    ring = {"symbol": "circle-open", "size": 14, "color": COLOURS[2], "line": {"width": 3}}
    figure.add_scatter(x=here[:1], y=here[1:], name="This run", mode="markers", marker=ring, cliponaxis=False)
    figure.update_xaxes(type="log", tickformat="~s", dtick=1)
    return figure.update_yaxes(type="log", tickformat="~s", ticksuffix="B", dtick=1)


def thin(curve: Curve, points: int = MOST_POINTS) -> Curve:
    """Keep at most `points` points, including the first and the last."""
    places = np.unique(np.linspace(0, len(curve.x) - 1, points).astype(np.int64))
    return curve if len(curve.x) <= points else Curve(curve.x[places], curve.y[places])


def smooth(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Moving average over `window` neighbours, fewer at both ends."""
    kernel = np.ones(min(window, len(values)))
    total = np.convolve(values, kernel, mode="same")
    return np.asarray(total / np.convolve(np.ones(len(values)), kernel, mode="same"), np.float64)


def _label_epochs(x: NDArray[np.float64], y: NDArray[np.float64], epochs: Sequence[int]) -> list[str]:
    """Words beside the points of a curve, left away where they would lie on those before."""
    labels, shown = [""] * len(epochs), [len(epochs) - 1]
    labels[-1] = f"epoch {epochs[-1]:,}" if epochs[-1] else "start"
    width = max(float(np.ptp(x)), 1e-9)
    for place in range(len(epochs) - 1):
        if all(abs(x[place] - x[other]) / width > 0.12 or abs(y[place] - y[other]) > 0.08 for other in shown):
            labels[place] = f"epoch {epochs[place]:,}" if epochs[place] else "start"
            shown.append(place)
    return labels


def _log_ticks(smallest: float, largest: float) -> list[float]:
    """Return powers of ten around a range, with intermediate steps when it is short."""
    steps = (1,) if largest / smallest > 30 else (1, 2, 5)
    powers = range(math.floor(math.log10(smallest)), math.ceil(math.log10(largest)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def _new_figure(x_label: str, y_label: str) -> go.Figure:
    """Create an empty figure in the style of the report, with labelled axes."""
    axis = {"automargin": True, "zeroline": False, "ticks": "outside", "title": {"standoff": 8}}
    style = {
        "colorway": list(COLOURS),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 24, "t": 34, "b": 8},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "bargap": 0.15,
        "xaxis": axis,
        "yaxis": axis,
    }
    layout = {"template": {"layout": style}, "xaxis_title_text": x_label, "yaxis_title_text": y_label}
    return go.Figure(layout=layout)
