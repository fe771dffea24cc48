"""The report's figures: plain arrays in, a plotly figure out.

Text and grid have no colours here: the page gives them those of the reader's colour scheme.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

MOST_POINTS: Final = 500
COLOURS: Final = ("#3b82f6", "#e8862e", "#22a06b", "#a06ee1", "#e5534b", "#14a3b8", "#b58900")
GREY: Final = "#8a94a6"


class Curve(NamedTuple):
    """Values over positions such as steps or epochs."""

    x: NDArray[Any]
    y: NDArray[Any]


def draw_roc(curves: Mapping[str, Curve]) -> go.Figure:
    """Accepted pairs of one person (TAR) against accepted pairs of two (FAR), FAR on a log axis."""
    figure = _new_figure("False accept rate", "True accept rate")
    positive = np.concatenate([curve.x[curve.x > 0] for curve in curves.values()])
    lowest = float(positive.min()) if len(positive) else 1e-3
    chance = np.geomspace(lowest, 1, 60)
    figure.add_scatter(x=chance, y=chance, name="Chance", line={"color": GREY, "dash": "dot", "width": 1.5})
    for name, curve in curves.items():
        figure.add_scatter(x=np.maximum(curve.x, lowest), y=curve.y, name=name)
    figure.update_xaxes(type="log", range=[np.log10(lowest), 0], tickformat=".3~%", dtick=1)
    return figure.update_yaxes(range=[0, 1.02], tickformat=".0%")


def draw_sample_counts(counts_N: NDArray[np.integer[Any]]) -> go.Figure:
    """How many images each identity has, from the most to the least frequent."""
    ranked = np.sort(counts_N)[::-1]
    curve = thin(Curve(np.arange(1, len(ranked) + 1), ranked))
    figure = _new_figure("Identities, the most frequent first", "Images of the identity")
    figure.add_scatter(x=curve.x, y=curve.y, name="Images", fill="tozeroy", showlegend=False)
    figure.update_xaxes(tickformat=",d")
    return figure.update_yaxes(rangemode="tozero", tickformat=",d")


def draw_separation(gap: Curve, kept: Curve) -> go.Figure:
    """The gap to the uniform limit and the neighbourhood kept, over epochs."""
    figure = _new_figure("Epoch", "Gap to the uniform limit")
    gap = thin(gap)
    figure.add_scatter(x=gap.x, y=gap.y, name="Gap (left)")
    figure.add_scatter(x=kept.x, y=kept.y, name="Neighbours kept (right)", yaxis="y2", mode="lines+markers")
    right = {"overlaying": "y", "side": "right", "range": [0, 1.03], "tickformat": ".0%", "showgrid": False}
    figure.update_layout(yaxis2=right)
    return figure.update_yaxes(rangemode="tozero", selector={"anchor": "x"})


def draw_trade_off(gap: NDArray[np.float64], kept: NDArray[np.float64], epochs: Sequence[int]) -> go.Figure:
    """What closing the gap costs: the neighbourhood kept against the gap, a point for each measured epoch."""
    figure = _new_figure("Gap to the uniform limit (smaller is more uniform)", "Neighbours kept")
    figure.add_scatter(
        x=gap,
        y=kept,
        text=[f"epoch {epoch:,}" for epoch in epochs],
        mode="lines+markers",
        showlegend=False,
        hovertemplate="%{text}<br>gap %{x:.4f}<br>kept %{y:.2%}<extra></extra>",
    )
    for place, name in ((0, "start"), (-1, f"epoch {epochs[-1]:,}")):
        figure.add_annotation(x=_on_axis(gap[place], gap), y=kept[place], text=name, ax=0, ay=-22)
    figure.update_xaxes(type="log" if (gap > 0).all() else "linear", autorange="reversed")
    return figure.update_yaxes(range=[0, 1.12], tickformat=".0%")


def draw_fill(shares_LB: Mapping[int, NDArray[np.float64]]) -> go.Figure:
    """How full the clusters of each level are: the share of them in each of B equal bins of fill."""
    figure = _new_figure("Seats taken", "Clusters of the level")
    for level, shares_B in shares_LB.items():
        edges = np.linspace(0, 1, len(shares_B) + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        figure.add_bar(x=middle, y=shares_B, name=f"Level {level}")
    figure.update_xaxes(range=[0, 1], tickformat=".0%")
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def draw_curves(
    curves: Mapping[str, Curve], label: str, *, share: bool = False, from_zero: bool = True
) -> go.Figure:
    """Curves of training over its steps, lightly smoothed."""
    figure = _new_figure("Step", label)
    for name, curve in curves.items():
        shown = thin(Curve(curve.x, smooth(curve.y, max(1, len(curve.y) // 50))))
        figure.add_scatter(x=shown.x, y=shown.y, name=name, showlegend=len(curves) > 1)
    figure.update_xaxes(tickformat=",d")
    figure.update_yaxes(rangemode="tozero" if from_zero else "normal")
    return figure.update_yaxes(tickformat=".0%") if share else figure


def thin(curve: Curve, points: int = MOST_POINTS) -> Curve:
    """At most so many points, the first and the last among them."""
    places = np.unique(np.linspace(0, len(curve.x) - 1, points).astype(np.int64))
    return curve if len(curve.x) <= points else Curve(curve.x[places], curve.y[places])


def smooth(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Moving average over `window` neighbours, fewer at both ends."""
    kernel = np.ones(min(window, len(values)))
    total = np.convolve(values, kernel, mode="same")
    return np.asarray(total / np.convolve(np.ones(len(values)), kernel, mode="same"), np.float64)


def _on_axis(value: float, values: NDArray[np.float64]) -> float:
    """Where an annotation goes: plotly wants the exponent on a log axis."""
    return float(np.log10(value)) if (values > 0).all() else float(value)


def _new_figure(x_label: str, y_label: str) -> go.Figure:
    """An empty figure with the report's looks and labelled axes."""
    axis = {"automargin": True, "zeroline": False, "ticks": "outside", "title": {"standoff": 8}}
    looks = {
        "colorway": list(COLOURS),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "bargap": 0.15,
        "xaxis": axis,
        "yaxis": axis,
    }
    layout = {"template": {"layout": looks}, "xaxis_title_text": x_label, "yaxis_title_text": y_label}
    return go.Figure(layout=layout)
