"""Training data: which images make up each step, and how they are decoded and augmented.

augmentation  What training does to its images beyond mirroring: low resolution, blur, HSV, grey
decoders      Processes that decode faces into memory shared with the loader
device_batches  Batches on a GPU, copied there during the step before
loader        The batches of a training, decoded ahead of it by several processes
sampler       Which images make up every step of a training: a function of seed and epoch, whoever reads them
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["DecoderError", "batches_ahead", "load_batches", "plan_batches"]

if TYPE_CHECKING:
    from gif_core.training.data.decoders import DecoderError
    from gif_core.training.data.loader import batches_ahead, load_batches
    from gif_core.training.data.sampler import plan_batches
else:
    __getattr__ = lazy_imports(__name__)
