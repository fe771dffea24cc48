"""Counters of the service in Prometheus' text format."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

Labels = tuple[tuple[str, str], ...]
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FACES: Final = (1, 2, 4, 8, 16, 32)
HELP: Final = {
    "gif_requests_total": ("counter", "Requests, by path and status."),
    "gif_rejected_total": ("counter", "Requests that a limit has refused, by reason."),
    "gif_request_seconds": ("histogram", "Time from the first byte of a request to the end of its answer."),
    "gif_batch_faces": ("histogram", "Faces that went through the network together."),
    "gif_in_flight": ("gauge", "Requests that are being answered."),
    "gif_model_info": ("gauge", "1 for the model in use."),
    "gif_model_loaded_timestamp_seconds": ("gauge", "When the model in use was loaded."),
    "gif_refresh_failures_total": ("counter", "Failed looks at the store for a new champion or gallery."),
}


class Metrics:
    """Counts; safe to use from several threads."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._values: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Increase a counter or a gauge."""
        place = name, tuple(labels.items())
        with self._lock:
            self._values[place] = self._values.get(place, 0) + value

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge, of which only these labels stay."""
        with self._lock:
            for place in [place for place in self._values if place[0] == name]:
                del self._values[place]
            self._values[name, tuple(labels.items())] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        bounds, place = _bounds(name), (name, tuple(labels.items()))
        with self._lock:
            counts = self._histograms.setdefault(place, [0.0] * (len(bounds) + 2))
            counts[bisect_left(bounds, value)] += 1
            counts[-1] += value

    def text(self) -> str:
        """All metrics as Prometheus reads them."""
        with self._lock:
            values = dict(self._values)
            histograms = {place: list(counts) for place, counts in self._histograms.items()}
        return "".join(f"{line}\n" for name in HELP for line in _family(name, values, histograms))


def _family(
    name: str, values: Mapping[tuple[str, Labels], float], histograms: Mapping[tuple[str, Labels], list[float]]
) -> Iterator[str]:
    kind, meaning = HELP[name]
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for (known, labels), value in values.items():
        if known == name:
            yield f"{name}{_braces(labels)} {value:.15g}"
    for (known, labels), counts in histograms.items():
        if known == name:
            yield from _histogram(name, labels, counts)


def _histogram(name: str, labels: Labels, counts: list[float]) -> Iterator[str]:
    total = 0.0
    for bound, count in zip((*_bounds(name), "+Inf"), counts, strict=False):
        total += count
        yield f"{name}_bucket{_braces((*labels, ('le', str(bound))))} {total:.15g}"
    yield f"{name}_sum{_braces(labels)} {counts[-1]:.15g}"
    yield f"{name}_count{_braces(labels)} {total:.15g}"


def _bounds(name: str) -> tuple[float, ...]:
    return FACES if name == "gif_batch_faces" else SECONDS


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
