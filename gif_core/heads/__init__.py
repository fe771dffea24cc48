"""Heads: what turns features and labels into a loss. One protocol, one file for each kind.

base             What training asks of a head
classifier       Margin softmax with one row for each identity (Eq. 1): ArcFace, CosFace, AdaFace, and PartialFC
factory          A head by its name
gif              The paper's head: it learns identity codes (Eq. 7) and brings features to the code vectors (Eq. 8)
margins          Margins: what a classifier asks of the right class beyond being the nearest (Eq. 1)
row_sampling     Which rows of a classifier take part in a step (PartialFC), and what an optimizer remembers of each row
sharded_softmax  Softmax over the identities of all processes (Eq. 1), where each process holds some rows of the clas...
tokens           The part of the paper's head that reads a code from a feature: all that is needed of it after training
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["Head", "TokenHeads", "build_head"]

if TYPE_CHECKING:
    from gif_core.heads.base import Head
    from gif_core.heads.factory import build_head
    from gif_core.heads.tokens import TokenHeads
else:
    __getattr__ = lazy_imports(__name__)
