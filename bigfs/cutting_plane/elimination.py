"""From the union of the sets to exactly m features: backward elimination on what the cutting plane
relaxes.

    J(S) = min_W ½‖T − Xc[:, S] W‖² + γ/2 ‖W‖²                                  [SparGE, eq. 6]

With P = (G + γI)⁻¹ and W = PB, taking feature j away raises J by exactly ‖w_j‖²/(2P_jj). The
cheapest go, a few at a time, by block downdates of P and W, so that all of it costs about one
inverse. Ranking by ‖w_j‖ of the relaxation would count twice what two features share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, lapack

from bigfs.types import FloatArray, IntArray
from bigfs.validation import explain_singular


class Elimination(NamedTuple):
    """Positions among the u columns, the best first; what each one's removal cost; J by set
    size.
    """

    order: IntArray
    cost: FloatArray
    values: dict[int, float]


def eliminate(
    G: FloatArray,
    B: FloatArray,
    tt: float,
    gamma: float,
    stops: tuple[int, ...] = (),
    rate: float = 0.05,
) -> Elimination:
    """Backward elimination on ½‖T − XW‖² + γ/2 ‖W‖², the problem that the cutting plane relaxes.

    With P = (G + γI)⁻¹ and W = PB, taking feature j away raises the minimum by exactly
    ‖w_j‖²/(2P_jj). The cheapest `rate` of the features go at a time (block downdates of P and W, so
    all of it costs about one inverse), pausing at each size of `stops`. Sets are nested: the first
    k of the order are the choice of k. Ranking by ‖w_j‖ of the relaxation would count twice what
    two features share.
    """
    left = np.arange(len(B))
    P = _inverse(G + gamma * np.eye(len(B)))
    W = P @ B
    gone: list[IntArray] = []
    costs: list[FloatArray] = []
    values = {}
    while len(left):
        values[len(left)] = float(0.5 * (tt - np.vdot(B[left], W)))
        cost = np.einsum("jr,jr->j", W, W) / (2 * np.diag(P))
        pause = max((k for k in stops if k < len(left)), default=0)
        count = min(max(1, int(rate * len(left))), len(left) - pause)
        cheapest = np.argsort(cost, kind="stable")
        out, keep = cheapest[:count], np.sort(cheapest[count:])
        gone.append(left[out])
        costs.append(cost[out])
        across = np.linalg.solve(P[np.ix_(out, out)], np.hstack([P[np.ix_(out, keep)], W[out]]))
        side = P[np.ix_(keep, out)]
        P = P[np.ix_(keep, keep)] - side @ across[:, : len(keep)]
        W = W[keep] - side @ across[:, len(keep) :]
        left = left[keep]
    return Elimination(np.concatenate(gone)[::-1], np.concatenate(costs)[::-1], values)


def _inverse(K: FloatArray) -> FloatArray:
    """The inverse itself, of a symmetric positive definite matrix: its diagonal is what is
    wanted.
    """
    with explain_singular("SparGE's ridge system"):
        lower, _ = cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)
    inverse, failed = lapack.dpotri(lower, lower=1, overwrite_c=1)
    if failed:
        raise np.linalg.LinAlgError(f"the matrix of {len(K)} features is singular: raise gamma")
    below = np.tril(inverse)
    return below + np.tril(below, -1).T
