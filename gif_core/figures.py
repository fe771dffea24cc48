"""The report's figures: plain arrays in, a plotly figure out.

Text and grid have no colours here: the page gives them those of the reader's colour scheme.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

MOST_POINTS: Final = 500
COLOURS: Final = ("#3b82f6", "#e8862e", "#22a06b", "#a06ee1", "#e5534b", "#14a3b8", "#b58900")
GREY: Final = "#8a94a6"
WITHOUT_LEGEND: Final = 14
"""Space above a figure that has no legend, in pixels."""


class Curve(NamedTuple):
    """Values over positions such as steps or epochs."""

    x: NDArray[Any]
    y: NDArray[Any]


def draw_roc(curves: Mapping[str, Curve]) -> go.Figure:
    """Accepted pairs of one person (TAR) against accepted pairs of two (FAR), FAR on a log axis."""
    figure = _new_figure("False accept rate", "True accept rate")
    for name, curve in curves.items():
        figure.add_scatter(x=curve.x[curve.x > 0], y=curve.y[curve.x > 0], name=name)
    lowest = min(float(trace.x.min()) for trace in figure.data)
    chance = np.geomspace(lowest, 1, 60)
    figure.add_scatter(x=chance, y=chance, name="Chance", line={"color": GREY, "dash": "dot", "width": 1.5})
    figure.update_xaxes(type="log", range=[np.log10(lowest), 0.01], tickformat=".3~%", dtick=1)
    return figure.update_yaxes(range=[0, 1.02], tickformat=".0%")


def draw_sample_counts(counts_N: NDArray[np.integer[Any]]) -> go.Figure:
    """How many images each identity has, from the most to the least frequent."""
    ranked = np.sort(counts_N)[::-1]
    curve = thin(Curve(np.arange(1, len(ranked) + 1), ranked))
    figure = _new_figure("Identities, the most frequent first", "Images of the identity")
    figure.add_scatter(x=curve.x, y=curve.y, name="Images", mode="lines", fill="tozeroy", line_shape="hv")
    figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    figure.update_xaxes(tickformat=",d")
    return figure.update_yaxes(rangemode="tozero", tickformat=",d")


def draw_separation(gap: Curve, kept: Curve) -> go.Figure:
    """The gap to the uniform limit and the neighbourhood kept, over epochs."""
    figure = _new_figure("Epoch", "Gap to the uniform limit")
    gap = thin(gap)
    figure.add_scatter(x=gap.x, y=gap.y, name="Gap (left)", mode="lines")
    figure.add_scatter(x=kept.x, y=kept.y, name="Neighbours kept (right)", yaxis="y2", mode="lines+markers")
    right = {"overlaying": "y", "side": "right", "range": [0, 1.04], "tickformat": ".0%", "showgrid": False}
    figure.update_layout(yaxis2=right | {"tickmode": "linear", "dtick": 0.25, "automargin": True})
    figure.update_layout(yaxis_tickfont_color=COLOURS[0], yaxis2_tickfont_color=COLOURS[1])
    return figure.update_layout(yaxis_rangemode="tozero")


def draw_trade_off(gap: NDArray[np.float64], kept: NDArray[np.float64], epochs: Sequence[int]) -> go.Figure:
    """What closing the gap costs: the neighbourhood kept against the gap, a point for each measured epoch."""
    figure = _new_figure("Gap to the uniform limit", "Neighbours kept")
    figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND, margin_r=36)
    figure.add_scatter(
        x=gap,
        y=kept,
        customdata=epochs,
        text=["start", *[""] * (len(epochs) - 2), f"epoch {epochs[-1]:,}"][: len(epochs)],
        textposition=["top right", *["top center"] * (len(epochs) - 1)],
        cliponaxis=False,
        mode="lines+markers+text",
        hovertemplate="epoch %{customdata:,}<br>gap %{x:.4f}<br>kept %{y:.2%}<extra></extra>",
    )
    if (gap > 0).all():
        figure.update_xaxes(type="log", tickvals=_log_ticks(gap.min(), gap.max()), tickformat="~g")
    figure.update_xaxes(autorange="reversed")
    return figure.update_yaxes(range=[0, 1.15], tickformat=".0%", dtick=0.25)


def draw_fill(shares_LB: Mapping[int, NDArray[np.float64]]) -> go.Figure:
    """How full the clusters of each level are: the share of them in each of B equal bins of fill."""
    figure = _new_figure("Seats taken", "Clusters of the level")
    for level, shares_B in shares_LB.items():
        edges = np.linspace(0, 1, len(shares_B) + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        figure.add_bar(x=middle, y=shares_B, name=f"Level {level}")
    figure.update_xaxes(range=[-0.01, 1.01], tickformat=".0%", dtick=0.25)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def draw_curves(curves: Mapping[str, Curve], label: str, *, share: bool = False) -> go.Figure:
    """Curves of training over its steps, lightly smoothed."""
    figure = _new_figure("Step", label)
    for name, curve in curves.items():
        shown = thin(Curve(curve.x, smooth(curve.y, max(1, len(curve.y) // 50))))
        figure.add_scatter(x=shown.x, y=shown.y, name=name)
    if len(curves) == 1:
        figure.update_layout(showlegend=False, margin_t=WITHOUT_LEGEND)
    figure.update_xaxes(tickformat=",d")
    figure.update_yaxes(rangemode="tozero")
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


def _log_ticks(smallest: float, largest: float) -> list[float]:
    """Powers of ten around a range, with steps between them when it is short."""
    steps = (1,) if largest / smallest > 30 else (1, 2, 5)
    powers = range(math.floor(math.log10(smallest)), math.ceil(math.log10(largest)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def _new_figure(x_label: str, y_label: str) -> go.Figure:
    """An empty figure with the report's looks and labelled axes."""
    axis = {"automargin": True, "zeroline": False, "ticks": "outside", "title": {"standoff": 8}}
    looks = {
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
    layout = {"template": {"layout": looks}, "xaxis_title_text": x_label, "yaxis_title_text": y_label}
    return go.Figure(layout=layout)
