"""Identification among enrolled identities: by decoding a code, by search among all code vectors, or by both."""

# Shapes: N identities, B images, K candidates of an image, D dimensions, L tokens of a code, V values of a token.

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gif_core.artifacts import Artifact
from gif_core.heads import TokenHeads
from gif_core.recognition.beam_search import search_codes, token_log_probs
from gif_core.recognition.code_tree import NO_IDENTITY, CodeTree
from gif_core.separation import open_code_vectors
from gif_core.tokenization import Codes, CodeShape, read_codes
from gif_core.training import check_has_token_heads, check_reads_codes, learned_codes, load_token_heads
from schemas.files import CODE_VECTORS_FILE, CODES_DUCKDB_FILE, HEAD_FILE, MODEL_FILE
from schemas.stages import StageName

Method = Literal["codes", "reranked", "exhaustive"]
"""`codes`: the most probable codes. `reranked`: the codes of a beam, by z·h. `exhaustive`: the largest z·h of all."""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
Floats = NDArray[np.float32]
_ROWS_AT_ONCE: Final = 2**14
"""Most code vectors read at a time to rank candidates."""
_BLOCK: Final = 2**17
"""Code vectors searched at a time."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Identities that an image may show, best first."""

    identities_BK: NDArray[np.int64]
    """NO_IDENTITY where there are fewer than K."""
    scores_BK: Floats
    """The score they are ranked by: z·h, or the log probability of the code; -inf where there are fewer than K."""


class Gallery:
    """Enrolled identities with their codes and code vectors, and the heads that predict codes from features."""

    def __init__(
        self,
        heads: TokenHeads,
        codes_NL: Codes,
        shape: CodeShape,
        vectors_ND: NDArray[np.floating[Any]],
        *,
        beam: int = 64,
        device: torch.device | None = None,
        reads_codes: bool = True,
    ) -> None:
        """Take code vectors as they went into training; if the heads have a map, h is the mapped vector.

        They may be memory-mapped: `reranked` reads only the rows of its candidates. Without `reads_codes` the heads
        were not trained on codes, and only `exhaustive` and the cosines are meaningful.
        """
        if len(codes_NL) != len(vectors_ND):
            raise ValueError(f"{len(codes_NL)} codes do not fit {len(vectors_ND)} code vectors")
        self.device = device or torch.device("cpu")
        self.heads, self.tree = heads.to(self.device).eval(), CodeTree(codes_NL, shape, self.device)
        self.vectors_ND, self.beam, self.reads_codes = vectors_ND, beam, reads_codes

    def __len__(self) -> int:
        """Number of enrolled identities."""
        return len(self.vectors_ND)

    def find(self, z_BD: Floats, top: int, method: Method = "reranked") -> Candidates:
        """The `top` candidates for features of unit length."""
        ways: dict[Method, Callable[[Floats, int], Candidates]] = {
            "codes": self._decode,
            "reranked": self._rerank,
            "exhaustive": self._search,
        }
        return ways[method](z_BD, min(top, len(self)))

    @torch.inference_mode()
    def probabilities(self, z_BD: Floats, identities_BK: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probability of each candidate's code among all enrolled codes: Π_j p_j(c_j) / Σ over all of them.

        Tokens are treated as independent, as in Eq. 7.
        """
        log_probs_LBV = self._log_probs(z_BD)
        codes_BKL = torch.from_numpy(self.tree.codes_NL[np.maximum(identities_BK, 0)].astype(np.int64)).to(self.device)
        own_LBK = log_probs_LBV.gather(2, codes_BKL.permute(2, 0, 1))
        log_BK = own_LBK.double().sum(dim=0) - self.tree.total_log_prob(log_probs_LBV)[:, None]
        return np.where(identities_BK == NO_IDENTITY, 0.0, log_BK.exp().cpu().numpy())

    def cosines(self, z_BD: Floats, identities_BK: NDArray[np.int64]) -> Floats:
        """z·h of each candidate; -inf for NO_IDENTITY."""
        cosines_BK = np.empty(identities_BK.shape, np.float32)
        images = max(1, _ROWS_AT_ONCE // identities_BK.shape[1])
        for start in range(0, len(z_BD), images):
            part = slice(start, start + images)
            identities, place_BK = np.unique(identities_BK[part], return_inverse=True)
            rows_BKD = self._place(self.vectors_ND[identities])[place_BK]
            cosines_BK[part] = np.matmul(rows_BKD, z_BD[part][:, :, None])[:, :, 0]
        return np.where(identities_BK == NO_IDENTITY, np.float32(-np.inf), cosines_BK)

    @torch.inference_mode()
    def _log_probs(self, z_BD: Floats) -> Tensor:
        return token_log_probs(self.heads, torch.from_numpy(z_BD).to(self.device))

    @torch.inference_mode()
    def _decode(self, z_BD: Floats, top: int) -> Candidates:
        found = search_codes(self.tree, self._log_probs(z_BD), max(self.beam, top))
        return Candidates(found.identities_BK[:, :top].cpu().numpy(), found.log_probs_BK[:, :top].cpu().numpy())

    def _rerank(self, z_BD: Floats, top: int) -> Candidates:
        identities_BK = self._decode(z_BD, min(max(self.beam, top), len(self))).identities_BK
        return _keep_best(identities_BK, self.cosines(z_BD, identities_BK), top)

    def _search(self, z_BD: Floats, top: int) -> Candidates:
        """Search block by block, so that mapped vectors are never all in memory."""
        best = Candidates(np.empty((len(z_BD), 0), np.int64), np.empty((len(z_BD), 0), np.float32))
        for start in range(0, len(self), _BLOCK):
            block_ND = self._place(self.vectors_ND[start : start + _BLOCK])
            cosines_BK, rows_BK = faiss.knn(z_BD, block_ND, min(top, len(block_ND)), metric=faiss.METRIC_INNER_PRODUCT)
            best = _keep_best(
                np.concatenate([best.identities_BK, start + rows_BK], axis=1),
                np.concatenate([best.scores_BK, cosines_BK], axis=1),
                top,
            )
        return best

    @torch.inference_mode()
    def _place(self, frozen_KD: NDArray[np.floating[Any]]) -> Floats:
        """The code vectors h of these rows, after the heads' map if they have one."""
        rows_KD = np.ascontiguousarray(frozen_KD, np.float32)
        if not self.heads.map_width:
            return rows_KD
        placed_KD: Floats = self.heads.place(torch.tensor(rows_KD, device=self.device)).cpu().numpy()
        return placed_KD


def _keep_best(identities_BK: NDArray[np.int64], scores_BK: Floats, top: int) -> Candidates:
    """The `top` candidates by score, largest first; ties keep their order."""
    order_BK = np.argsort(-scores_BK, axis=1, kind="stable")[:, :top]
    return Candidates(
        np.take_along_axis(identities_BK, order_BK, axis=1), np.take_along_axis(scores_BK, order_BK, axis=1)
    )


def open_gallery(
    artifacts: Mapping[StageName, Artifact], *, beam: int, device: torch.device, method: Method | None = None
) -> Gallery:
    """The identities that a model was trained on, with their codes and code vectors: the learned ones if it has any.

    `method` is the one that will be used; by default all must work, as evaluation needs. NoTokenHeadsError if the model
    does not read codes. `exhaustive` needs only the code vectors, but all of them, so their file is digested.
    """
    training = artifacts["training"]
    description = training.path(MODEL_FILE)
    check = check_has_token_heads if method == "exhaustive" else check_reads_codes
    check(description)
    heads = load_token_heads(training.path(HEAD_FILE), description)
    codes_NL, shape = read_codes(artifacts["tokenization"].path(CODES_DUCKDB_FILE))
    source = training if training.names(CODE_VECTORS_FILE) else artifacts["separation"]
    vectors_ND = open_code_vectors(source, scattered=method in {"codes", "reranked"})
    reads_codes = learned_codes(description)
    return Gallery(heads, codes_NL, shape, vectors_ND, beam=beam, device=device, reads_codes=reads_codes)
