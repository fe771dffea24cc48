"""Benchmarking: how fast is this machine, and where does a step's time go? Figures for `gif bench` and `gif estimate`.

run         `run_benchmark`: one benchmark by its name
train       The trainer with its loader against the bare backbone
head        The head alone, at any number of identities
head_step   One step of a head, in phases; the paper's cost figures use it, too
embed       The embedding stage's work against the encoder's bare forward pass
separate    An epoch of separation against its two matrix products
decode      The loader, and decoding on one core against bare `cv2.imdecode`; how many cores a GPU needs
ingest      Files to shards, and drawing synthetic faces
tokenize    Code vectors to a code table with its quality
evaluate    Features, raw pixels, drawn probes and the search among the enrolled, as evaluation computes them
start       What every stage of a run takes beside the work that grows with its data
setting     What all of them share: the run's settings, the device, how long to measure
inputs      Drawn faces and random codes of any number of identities
timed_step  The trainer's step with its time by phases
clock       Time by phases, on the host or on the device
host_waits  Counts what the host waits for
peaks       FLOPs of networks, and the peak of a device: from its data sheet or measured
memory      Peak memory of a block
picture     The result as text with bars, and as an SVG image
store       The file in which the figures of this machine are kept
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "PEAKS",
    "DataSheet",
    "HeadStep",
    "describe_result",
    "draw_labels",
    "draw_svg",
    "figures_file",
    "find_data_sheet",
    "keep_result",
    "read_figures",
    "run_benchmark",
    "size_of_backbone",
]

if TYPE_CHECKING:
    from gif_core.benchmarking.head_step import HeadStep, draw_labels
    from gif_core.benchmarking.peaks import PEAKS, DataSheet, find_data_sheet, size_of_backbone
    from gif_core.benchmarking.picture import describe_result, draw_svg
    from gif_core.benchmarking.run import run_benchmark
    from gif_core.benchmarking.store import figures_file, keep_result, read_figures
else:
    __getattr__ = lazy_imports(__name__)
