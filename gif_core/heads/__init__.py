"""Heads: how features and labels become a loss.

base             Head, the interface of all heads, and HeadOutput
factory          build_head: a head by its name in the settings
gif              the paper's head: code loss (Eq. 7), alignment loss (Eq. 8) and its negatives, their sum (Eq. 10)
token_heads      TokenHeads: the classifiers of each token (Eq. 7), which a trained model keeps to predict codes
code_vectors     H during training: the rows in use, frozen or living, and the optimizer of living rows
rows_ahead       rows of the host that a thread reads a step ahead, and writes back
shared_map       the learned map of code vectors, shared by all identities
sample_negatives  features of other images as negatives, for any head
classifier       per-identity classifiers (Eq. 1) and PartialFC's sampling of rows
margins          ArcFace, CosFace, SphereFace, AdaFace, CurricularFace and MagFace margins
broadface        BroadFace: rows that also learn from earlier images
virtual_fc       Virtual FC: few anchors for all identities
dul              DUL: a feature is a normal distribution
groupface        GroupFace: features that know their group
pairs            PairHead: heads that compare with an average of the network
dcq              DCQ: class weights are keys in a queue
f2c              F²C: a pool of class centres
feature_queue    FeatureQueue: features of recent images
class_pool       ClassPool: centres of recently used identities
row_sampling     PartialFC: which rows a step uses, and the optimizer's state of them
sharded_softmax  margin softmax over rows that are divided among processes
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["Head", "HeadOutput", "PairHead", "TokenHeads", "apply_shared_map", "build_head"]

if TYPE_CHECKING:
    from gif_core.heads.base import Head, HeadOutput
    from gif_core.heads.factory import build_head
    from gif_core.heads.pairs import PairHead
    from gif_core.heads.shared_map import apply_shared_map
    from gif_core.heads.token_heads import TokenHeads
else:
    __getattr__ = lazy_imports(__name__)
