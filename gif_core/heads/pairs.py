"""The interface of heads that compare features with those of a slowly moving average of the network."""

# Shapes: B images of this process (two of each pair, one after the other), P pairs, D dimensions.

from torch import Tensor

from gif_core.heads.base import Head, HeadOutput


class PairHead(Head):
    """Features of the trained network and of its average → loss. Images 2·i and 2·i + 1 of a batch are a pair.

    Training calls `compare` in place of `forward`, and moves the average after every step.
    """

    keys_apart: bool
    """Whether only the first image of a pair goes through the network and only the second through the average; else
    all images go through both."""
    average_decay: float
    """Share of the average that remains in a step."""
    publishes_average: bool
    """Whether the average is the network to evaluate, as its authors do; else the trained network."""

    def compare(self, features_PD: Tensor, keys_PD: Tensor, labels_B: Tensor) -> HeadOutput:
        """The loss of un-normalised features, and of features `keys_PD` of the average, which have no gradient.

        The trainer averages it and its gradient over the processes.
        """
        raise NotImplementedError
