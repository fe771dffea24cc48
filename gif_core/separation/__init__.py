"""Separation (Eq. 4 to 6): how identity vectors are spread over the sphere and become the code vectors H.

stage             `run`: identity vectors → `code_vectors.safetensors`, the curve of the descent, pairwise distances
descent           `separate`: epochs of gradient steps on Eq. 6, the metrics of each epoch, the stopping rules
potential         The Gaussian potential: its uniform limit (Eq. 4), its mean (Eq. 5), the gradient of a batch (Eq. 6)
equalisation      The closed-form first step: remove the mean, flatten the spectrum until a given gap is reached
linear_maps       Least-squares map that places new identities; projection onto fewer dimensions
neighbourhoods    How much of the start is kept: nearest neighbours and rank correlation of similarities
distances         Minimum, mean and maximum pairwise cosine distance and its histogram (the paper's Figure 4)
starting_vectors  The vectors to start from: the encoder's, or known code vectors with new ones placed among them
checkpoints       Saves and restores the vectors and metrics of an interrupted separation
code_vectors      Opens the code vectors of a published separation
worker            Runs a separation from file to file: in this process or as one of several under torchrun
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "CHUNK",
    "NAME",
    "SCORED_ROWS",
    "VECTORS",
    "Neighbourhoods",
    "SeparationScores",
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
    from gif_core.separation.distances import (
        SCORED_ROWS,
        SeparationScores,
        bin_edges,
        measure_distances,
        separation_scores,
    )
    from gif_core.separation.equalisation import centre, equalise
    from gif_core.separation.linear_maps import CHUNK, fit_map, leading_directions, place, project
    from gif_core.separation.neighbourhoods import Neighbourhoods, neighbours_kept, sample
    from gif_core.separation.potential import batch_gradient, mean_potential, tangent, uniform_limit
    from gif_core.separation.worker import VECTORS, run_job
else:
    __getattr__ = lazy_imports(__name__)
