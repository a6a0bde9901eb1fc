"""LLFS: local-learning-based feature selection.

[Sun, Todorovic, Goodison, IEEE Transactions on Pattern Analysis and Machine Intelligence 2010]

    min  Σ_i log(1 + exp(−wᵀz_i)) + λ Σ_j w_j,    w ≥ 0                              [eq. 8, 9]
    z_i = Σ_{l∈M_i} p_il |x_i − x_l| − Σ_{l∈H_i} p_il |x_i − x_l|
    p_il ∝ exp(−wᵀ|x_i − x_l| / σ)        over the misses M_i and over the hits H_i

wᵀz_i is how much farther sample i is from the nearest sample of another class than from the nearest
of its own, in the distance that w defines. A round takes p at w, and then the w that solves the
convex problem at p. Where the change hardly falls, w goes half as far from then on: the rounds of
the paper only settle where σ is large. The differences are in units of the features' ranges.

The paper takes all pairs of samples. Here i goes over some samples, the anchors, and M_i and H_i
are the k nearest of each kind. The differences are gathered once: m × 2k sparse rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, minimize
from scipy.special import expit

from bigfs import engine
from bigfs.graph.edges import Metric
from bigfs.matrix import Block, Matrix
from bigfs.result import Record, Status
from bigfs.selectors.base.estimator import Cost, Selector, map_all_columns
from bigfs.selectors.base.labels import Labels, labeled_part
from bigfs.settings import Setting
from bigfs.types import BoolArray, FloatArray, IntArray

BYTES_PER_DIFFERENCE = 36  # a float64 and an int32, in three arrays while they are made
PAIRS_AT_ONCE = 1 << 18  # of an anchor and a row of a tile, whose distances are in memory
SETTLES = 0.9  # the change of a round over the change of the one before, at most
LEAST_STEP = 1 / 64  # of a round, once the weights run in a cycle
INNER_TOL = 1e-8  # of the projected gradient, relative to λ
INNER_MAX_ITER = 2000
# of a convex problem that starts from none; each time twice as many follow
FIRST_FEATURES = Setting(100)
DENSE_SHARE = 2 / 3  # of non-zeros, above which an array takes fewer bytes than a csr array


class Pairs(NamedTuple):
    """The pairs of anchors and near samples, in the order of the anchors."""

    anchor: IntArray  # (pairs,): number of the anchor, from 0
    other: IntArray  # (pairs,): row of the near sample
    is_miss: BoolArray  # (pairs,)


def nearest_hits_and_misses(
    X: Matrix, codes: IntArray, anchors: IntArray, k: int, metric: str
) -> Pairs:
    """Find the k nearest samples of the same class and of the others for each anchor.

    Equal distances go by lower row number. "cosine" also takes rows that share nothing. An anchor
    without a hit or without a miss is left out. Reads X once, and the anchors before.
    """
    A = sp.csr_array(X.rows(anchors), dtype=np.float64)
    squares = np.asarray(A.multiply(A).sum(axis=1)).ravel()
    parts = X.map(_nearest, 0, A, squares, anchors, codes, k, metric == "cosine")
    distance, row = (np.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    order = np.lexsort((row, distance), axis=2)[:, :, :k]
    distance, row = (np.take_along_axis(V, order, axis=2) for V in (distance, row))
    found = np.isfinite(distance)  # 2 × anchors × k
    found &= found.any(axis=2).all(axis=0)[None, :, None]
    anchor, kind, place = np.nonzero(found.transpose(1, 0, 2))
    return Pairs(anchor, row[kind, anchor, place], kind == 1)


def _nearest(
    block: Block,
    start: int,
    stop: int,
    A: sp.csr_array,
    squares: FloatArray,
    anchors: IntArray,
    codes: IntArray,
    k: int,
    cosine: bool,
) -> tuple[FloatArray, IntArray]:
    """Return the distances and rows (2 × anchors × ≤ k) of the hits and misses in a tile."""
    Z = sp.csr_array(block, dtype=np.float64)
    Zt, own = sp.csr_array(Z.T), np.asarray(Z.multiply(Z).sum(axis=1)).ravel()
    parts = []
    at_once = max(PAIRS_AT_ONCE // (stop - start), 1)
    for first in range(0, len(anchors), at_once):
        batch = slice(first, first + at_once)
        distance = -(A[batch] @ Zt).toarray()
        if cosine:
            sizes = np.sqrt(np.outer(squares[batch], own))
            np.divide(distance, sizes, out=distance, where=sizes > 0)
        else:
            distance = squares[batch, None] + own + 2 * distance
        same = codes[anchors[batch], None] == codes[start:stop]
        itself = anchors[batch, None] == np.arange(start, stop)
        of_kind = np.where(np.stack([same & ~itself, ~same]), distance, np.inf)
        best = np.argsort(of_kind, axis=2, kind="stable")[:, :, :k]
        parts.append((np.take_along_axis(of_kind, best, axis=2), start + best))
    distances, rows = zip(*parts, strict=True)
    return np.concatenate(distances, axis=1), np.concatenate(rows, axis=1)


def _ranges(block: Any, start: int, stop: int) -> FloatArray:
    """Return max − min of each column of a tile."""
    Z = sp.csc_array(block, dtype=np.float64)
    return np.asarray(Z.max(axis=0).toarray() - Z.min(axis=0).toarray()).ravel()


def differences(X: Matrix, pairs: Pairs, anchors: IntArray, ranges: FloatArray) -> Any:
    """Return |x_i − x_l| / range of each pair (pairs × d), as a csr array unless X is dense."""
    needed = np.union1d(anchors, pairs.other)
    mean = float(X.stats.nnz.sum()) / X.shape[0]
    engine.require_memory(
        int(BYTES_PER_DIFFERENCE * mean * (2 * len(pairs.other) + len(needed))),
        f"the differences of {len(pairs.other)} pairs of samples",
    )
    inverse = np.divide(1, ranges, out=np.zeros_like(ranges), where=ranges > 0)
    rows = sp.csr_array(sp.csr_array(X.rows(needed), dtype=np.float64) @ sp.diags_array(inverse))
    if rows.nnz > DENSE_SHARE * rows.shape[0] * rows.shape[1]:
        rows = rows.toarray()
    first, second = (rows[np.searchsorted(needed, V)] for V in (anchors[pairs.anchor], pairs.other))
    first -= second
    return abs(first)


class LLFSState(NamedTuple):
    """The weights after some rounds."""

    w: FloatArray  # (d,)
    length: float  # share of the way to the solution of a round that w goes
    objective: float
    change: float  # between w and the solution of the next round, relative
    violation: float  # of the optimality of the last convex problem, relative to λ


class LLFSProblem:
    """The differences of the pairs, and the step."""

    def __init__(self, D: Any, pairs: Pairs, lam: float, sigma: float) -> None:
        self.D, self.lam, self.sigma = D, lam, sigma
        numbers = np.unique(pairs.anchor, return_inverse=True)[1]
        self.n_anchors = int(numbers.max()) + 1
        self.group = 2 * numbers + pairs.is_miss  # pairs whose p sum to one
        self.anchor, self.sign = numbers, np.where(pairs.is_miss, 1.0, -1.0)

    def margins(self, w: FloatArray) -> Any:
        """Return the z of each anchor at w (anchors × d), as sparse as the differences."""
        closeness = -(self.D @ w) / self.sigma
        nearest = np.full(2 * self.n_anchors, -np.inf)
        np.maximum.at(nearest, self.group, closeness)
        p = np.exp(closeness - nearest[self.group])
        p /= np.bincount(self.group, weights=p)[self.group]
        P = sp.csr_array(
            (self.sign * p, (self.anchor, np.arange(len(p)))), shape=(self.n_anchors, len(p))
        )
        return P @ self.D

    def loss(self, w: FloatArray, Z: Any) -> tuple[float, FloatArray]:
        """Return the objective at w and its gradient, for the given z."""
        t = Z @ w
        value = float(np.logaddexp(0, -t).sum() + self.lam * w.sum())
        return value, self.lam - Z.T @ expit(-t)

    def step(self, state: LLFSState) -> LLFSState:
        """Run one round."""
        w, value, violation = self.solve(self.margins(state.w), state.w)
        size = max(np.linalg.norm(w), np.linalg.norm(state.w), np.finfo(float).tiny)
        change = float(np.linalg.norm(w - state.w) / size)
        settles = change < SETTLES * state.change
        length = state.length if settles else max(state.length / 2, LEAST_STEP)
        return LLFSState(state.w + length * (w - state.w), length, value, change, violation)

    def measure(self, state: LLFSState) -> Record:
        return {
            "objective": state.objective,
            "features": float(np.count_nonzero(state.w)),
            "change": state.change,
            "violation": state.violation,
        }

    def solve(self, Z: Any, start: FloatArray) -> tuple[FloatArray, float, float]:
        """Return the optimal w for the given z, its objective and the violation of optimality.

        The problem is solved on some features. Those that would get weight join them, until there
        are none.
        """
        w = np.where(np.count_nonzero(start) < len(start) / 2, start, 0)
        inside, tol = w > 0, INNER_TOL * self.lam
        solved = not inside.any()
        while True:
            value, slope = self.loss(w, Z)
            lacking = np.flatnonzero((slope < -tol) & ~inside)
            if solved and not len(lacking):
                break
            n_more = max(FIRST_FEATURES.value, int(inside.sum()))
            inside[lacking[np.argsort(slope[lacking], kind="stable")[:n_more]]] = True
            part = Z[:, np.flatnonzero(inside)]
            w[inside] = minimize(
                self.loss,
                w[inside],
                (part,),
                "L-BFGS-B",
                jac=True,
                bounds=Bounds(0, np.inf),
                options={"maxiter": INNER_MAX_ITER, "gtol": tol, "ftol": 0},
            ).x
            solved = True
        violations = np.abs(np.where(w > 0, slope, np.minimum(slope, 0)))
        return w, value, float(violations.max(initial=0.0)) / self.lam

    def scores(self, state: LLFSState) -> FloatArray:
        """Return w where it is positive.

        A feature of zero weight has a score in [−1, 0], by how strongly the margins pull at it.
        """
        slope = self.loss(state.w, self.margins(state.w))[1]
        pull = self.lam - slope
        lack = (pull - self.lam) / (self.lam + np.abs(pull).max())
        return np.where(state.w > 0, state.w, np.minimum(lack, 0))


class LLFS(Selector):
    """Choose features in which samples are near their own class and far from the others.

    Local-learning-based feature selection [1]_ weighs the features so that most samples are nearer
    to their nearest sample of the same class than to the nearest of the others. Unlabeled samples
    are left out.

    Parameters
    ----------
    lam : float, default=1.0
        Weight λ of the sparsity, against the loss of one anchor. A larger value leaves fewer
        features with a weight.
    sigma : float, default=5.0
        Width σ of the kernel in which samples are near. The distances are sums of weighted
        differences, each in [0, 1]. With a small width the rounds may not settle.
    n_neighbors : int, default=10
        Number of candidates for the nearest sample of the same class, and of the other classes.
    n_anchors : int, default=1000
        Number of samples whose margins count, drawn at random. All if there are fewer.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance of the candidates.
    random_state : int, default=0
        Seed of the anchors.
    tol : float, default=1e-2
        Relative change of the weights in a round at which to stop.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Weight w of each feature, where it is positive. A feature of zero weight has a score in
        [−1, 0], by how strongly the margins pull at it.
    %(classes)s
    anchors_ : ndarray of shape (n_anchors,)
        Numbers of the anchors among the labeled samples.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective, the number of features,
        the change of the weights, and the violation of optimality of the convex problem. The stats
        have the number of pairs and the passes over X.

    See Also
    --------
    ReliefF : Differences to fixed neighbors, one feature at a time.

    Notes
    -----
    With the hits H_i and misses M_i of anchor i, and differences in units of the features' ranges::

        min Σ_i log(1 + exp(−wᵀz_i)) + λ Σ_j w_j,    w ≥ 0
        z_i = Σ_{l∈M_i} p_il |x_i − x_l| − Σ_{l∈H_i} p_il |x_i − x_l|
        p_il ∝ exp(−wᵀ|x_i − x_l| / σ)

    In [1]_ the sums go over all samples. The convex problem of a round is solved to its optimum,
    and the rounds end at a fixed point. No bound tells how good it is.

    References
    ----------
    .. [1] Y. Sun, S. Todorovic and S. Goodison, "Local-learning-based feature selection for
       high-dimensional data analysis", IEEE Transactions on Pattern Analysis and Machine
       Intelligence, 2010.

    Examples
    --------
    %(iris)s
    >>> from bigfs import LLFS
    >>> selector = LLFS(n_features_to_select=2, metric="euclidean").fit(X, y)
    >>> selector.selected_
    array([3, 2])
    >>> selector.result_.status.name
    'FINISHED'
    """

    lam: float = 1.0
    sigma: float = 5.0
    n_neighbors: int = 10
    n_anchors: int = 1000
    metric: Metric = "cosine"
    random_state: int = 0
    tol: float = 1e-2
    max_iter: int = 50

    _cost = Cost("3", "2 k rows per anchor")

    def _fit(self, X: Matrix, y: Labels) -> None:
        X, self.classes_, codes = labeled_part(X, y)
        _ = X.stats  # refuses values whose squares overflow
        drawn = np.random.default_rng(self.random_state).permutation(X.shape[0])[: self.n_anchors]
        self.anchors_ = np.sort(drawn)
        pairs = nearest_hits_and_misses(
            self._allowed(X), codes, self.anchors_, self.n_neighbors, self.metric
        )
        if not len(pairs.anchor):
            raise ValueError(
                "no anchor has another sample of its class: give more samples per class"
            )
        ranges = np.concatenate(map_all_columns(X, _ranges, label="LLFS"))
        ranges[self._constraints.absent] = 0  # as of a constant one: it gets no weight
        D = differences(X, pairs, self.anchors_, ranges)
        problem = LLFSProblem(D, pairs, self.lam, self.sigma)
        start = LLFSState((ranges > 0).astype(np.float64), 1.0, np.inf, np.inf, 0.0)
        state = self._iterate(problem, start, stop="change", reached=Status.FINISHED)
        self.scores_ = np.where(ranges > 0, problem.scores(state), np.nan)
        self.result_.stats.update(pairs=len(pairs.anchor))
