"""Separation (Eq. 4 to 6): identity vectors are spread over the sphere and become the code vectors H.

checkpoints     Checkpoints of a separation: the vectors in a safetensors file, the metrics so far in a JSON that nam...
code_vectors    Code vectors H as a published artifact
descent         Separation: spreading code vectors over the sphere with the Gaussian potential (Eq. 4 to 6)
distances       How far apart vectors are: min, mean and max cosine distance over all pairs (the paper's Figure 4), a...
equalisation    A closed-form start for separation: the common mean removed and the spectrum made flatter
linear_maps     Linear maps between identity vectors and code vectors
neighbourhoods  How much of the vectors' relations at the start is still there: nearest neighbours, and ranks of simi...
potential       The Gaussian potential of vectors on the sphere (Eq. 4 to 6): its uniform limit, its mean, its gradient
worker          Separation from files to files: in the calling process, or as one of several under torchrun
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "CHUNK",
    "NAME",
    "VECTORS",
    "Neighbourhoods",
    "SeparationStep",
    "batch_gradient",
    "bin_edges",
    "centre",
    "equalise",
    "fit_map",
    "leading_directions",
    "mean_potential",
    "measure_distances",
    "neighbours_kept",
    "open_code_vectors",
    "place",
    "project",
    "run_job",
    "sample",
    "separated",
    "separation_scores",
    "tangent",
    "uniform_limit",
]

if TYPE_CHECKING:
    from gif_core.separation.checkpoints import NAME
    from gif_core.separation.code_vectors import open_code_vectors
    from gif_core.separation.descent import SeparationStep, separated
    from gif_core.separation.distances import bin_edges, measure_distances, separation_scores
    from gif_core.separation.equalisation import centre, equalise
    from gif_core.separation.linear_maps import CHUNK, fit_map, leading_directions, place, project
    from gif_core.separation.neighbourhoods import Neighbourhoods, neighbours_kept, sample
    from gif_core.separation.potential import batch_gradient, mean_potential, tangent, uniform_limit
    from gif_core.separation.worker import VECTORS, run_job
else:
    __getattr__ = lazy_imports(__name__)
