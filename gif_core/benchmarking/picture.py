"""A result as text with bars, in 80 columns, and as an SVG image."""

from collections.abc import Iterator
from html import escape
from typing import Final

from gif_core.runtime import size, thousands
from schemas.benchmarks import BenchmarkResult

BAR: Final = 36
"""Characters of the longest bar."""
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
NAME: Final = 18
ROW, LEFT, WIDTH = 26, 150, 380
"""Pixels of the image: height of a row, where bars begin, and how long the longest may be."""
COLOURS: Final = ("#3b82f6", "#8a94a6")
"""Of what a step does itself, and of what goes on beside it."""


def describe_result(result: BenchmarkResult) -> list[str]:
    """The figures, then a bar for every phase."""
    title = f"{result.name}: {result.subject} on {result.device} ({result.hardware})"
    return [*_wrap(title), *(f"  {line}" for line in _figures(result)), "", *_bars(result)]


def draw_svg(result: BenchmarkResult) -> str:
    """The phases as an image."""
    rows = _rows(result)
    longest = max((seconds for _, seconds, _ in rows), default=1.0) or 1.0
    parts = [f'<text x="10" y="22" font-weight="600">{escape(f"{result.name}: {result.subject}")}</text>']
    parts.append(f'<text x="10" y="40">{escape(result.hardware)}, {_rate(result)}</text>')
    for number, (name, seconds, beside) in enumerate(rows):
        y = 54 + ROW * number
        parts.append(f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        length = WIDTH * seconds / longest
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="18" fill="{COLOURS[beside]}"/>')
        parts.append(f'<text x="{LEFT + length + 8:.1f}" y="{y + 15}">{_time(seconds)}</text>')
    height = 64 + ROW * len(rows)
    style = 'font-family="sans-serif" font-size="13" fill="#6e7781"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" {style}>{"".join(parts)}</svg>\n'


def _figures(result: BenchmarkResult) -> Iterator[str]:
    yield _rate(result)
    if result.share is not None:
        yield from _wrap(f"{result.share:.2f} of the speed of {result.reference}")
    if result.utilisation is not None and result.peak_flops:
        peak = f"{result.peak_flops / 1e12:,.2f} TFLOP/s"
        yield f"utilisation {result.utilisation:.1%} of {peak} ({result.peak_source})"
    if result.peak_memory is not None:
        kind = "allocated on the GPU" if result.device == "cuda" else "resident, with all processes"
        yield f"peak memory {size(result.peak_memory)} {kind}"
    if result.name in ("train", "head"):
        counted = "none: a CPU has no queue to wait for" if result.host_syncs is None else result.host_syncs
        yield f"host waits in a steady step: {counted}"
    if "cores_for_gpu" in result.figures:
        yield from _cores(result)


def _cores(result: BenchmarkResult) -> Iterator[str]:
    figures = result.figures
    ours, bare = f"{figures['per_core']:,.0f}", f"{figures['bare_per_core']:,.0f}"
    yield f"per core {ours} images/s, bare cv2.imdecode {bare} (by processor time)"
    gpu = thousands(figures["gpu_images_per_second"])
    yield f"cores that a GPU of {gpu} images/s needs: {figures['cores_for_gpu']:.1f}"


def _rate(result: BenchmarkResult) -> str:
    return f"{result.per_second:,.{0 if result.per_second >= 100 else 1}f} {result.items}/s"


def _bars(result: BenchmarkResult) -> Iterator[str]:
    rows = _rows(result)
    total = sum(result.phases.values()) or 1.0
    longest = max((seconds for _, seconds, _ in rows), default=0.0) or 1.0
    for name, seconds, beside in rows:
        share = "beside" if beside else f"{seconds / total:6.1%}"
        yield f"  {name:<{NAME}} {_bar(seconds / longest)} {_time(seconds):>9} {share:>6}"


def _rows(result: BenchmarkResult) -> list[tuple[str, float, bool]]:
    own = [(name, seconds, False) for name, seconds in result.phases.items()]
    return [(name, seconds, True) for name, seconds in result.beside.items()] + own


def _bar(share: float) -> str:
    eighths = round(8 * BAR * share)
    return f"{EIGHTHS[8] * (eighths // 8)}{EIGHTHS[eighths % 8].strip()}".ljust(BAR)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.{1 if seconds * factor < 100 else 0}f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


def _wrap(text: str, width: int = 76) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("  ")
        lines[-1] += word if lines[-1].strip() == "" else f" {word}"
    return lines
