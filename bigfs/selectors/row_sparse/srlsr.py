"""SRLSR: rescaled least squares, semi-supervised [Chen, Yuan, Nie, Ming, IEEE TKDE 2018].

    min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ                                        [eq. 50, corrected]

over W (d × c), b (c), and the rows of Y (n × c) of the unlabeled samples on the probability
simplex. The penalty is squared, unlike in the print. RLSR is p = 1.

A round, with φ_j = θ_j^(2/p − 1), and φ = 1 at first:

    W = (XcᵀXc + γ diag(1/φ))⁻¹ XcᵀY          one weighted ridge solve
    b = mean(Y − XW)
    Y_i = the projection of Wᵀx_i + b on the simplex, for each unlabeled i      [`label_sums`]
    θ_j = ‖w_j‖ᵖ / Σ‖w‖ᵖ

The objective falls in every round after the first. With `accelerate` a round goes beyond its end,
and the rounds of RLSR begin with the features of the largest pulls, where all samples are labeled,
or else with the labeled samples. A sample on the simplex has no part in V, so the others come when
a check finds that they are not, and the objective is over those that came.

The certificate for p < 1, at (W, b, Y) with the centered residual V = Y − XW − 1bᵀ, is how far the
rows of active features are from stationary, relative to the penalty:

    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ

A row at zero is stationary, because the slope of the penalty is infinite there. A run that this
certificate would end computes it once more, from a product of X with W.

For p = 1 the problem is convex, and a duality gap replaces it. Any V with 1ᵀV = 0 bounds the
optimum from below by a²/4q with

    a = 2 Σ_labeled ⟨v_i, y_i⟩ + 2 Σ_unlabeled min_k v_ik,    q = ‖V‖² + max_j ‖x_jᵀV‖² / γ

V is the residual whose mean is taken from its labeled rows alone, so that min_k v_ik of the others
is known in the pass that makes V. The maximum is over all features, also those that left the
working set. A feature that left and whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from bigfs import engine
from bigfs.linalg.conjugate_gradients import STRIP, subtract_product
from bigfs.linalg.prox import norm_2p, row_norms
from bigfs.linalg.ridge.operator import centering
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.result import Record
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import at_least_two
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.row_sparse.label_sums import (
    LabelSums,
    complete_labels,
    distances_to_simplex,
    sum_samples,
)
from bigfs.selectors.row_sparse.rows import (
    RETREAT,
    RETURN_SHARE,
    RowSparseProblem,
    RowSparseSelector,
    extrapolate,
    inactive_scores,
    next_momentum,
    norm_alone,
    without_negligible,
)
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

NEGLIGIBLE = 1e-10  # a feature whose θ is below this share of the largest leaves the working set
FIRST = 1000  # features of the first working set (p = 1, all labeled), those of the largest pulls
FEWEST_NEW = 64  # features that may return at once (p = 1), or twice those that are there
LEAVING_SHARE = 0.3  # of θ's mass: what leaves early in one round
RESTART = 0.5  # of the momentum's age: the share that stays where it raises the objective
RETREAT_END = 1e-12  # a feature whose return raises the objective stays out from this θ on
RANGE = 290  # exponent of 10 of γ/φ that a feature of the working set may have
LARGEST = 140  # exponent of 10 of γ d^(2/p), beyond which the squares of weights underflow
ROUNDING = 1e10  # largest pull of the penalty, relative to XcᵀY, that leaves a product its digits
OFF_SIMPLEX = 1e-10  # distance to the simplex that is no rounding
FEWEST_ROWS = 1000  # samples that may come at once, or twice those that are there
CHECK = 0.3  # share of the violation at the last check, at which the next one is made
LABELS_SHARE = 0.25  # of the memory limit: what the labels of all samples may take in the end


# --- problem and step ----------------------------------------------------------------------------


class SRLSRState(NamedTuple):
    """The solution after some rounds, with its certificate. Y is a function of (W, b)."""

    theta: FloatArray  # (d,): on the simplex after the first round; 0 where a feature is inactive
    W: FloatArray  # d × c, zero where a feature is inactive
    b: FloatArray  # (c,)
    XtV: FloatArray  # d × c: XcᵀV of the active features, of all once `gap` is finite
    mean_V: FloatArray  # (c,)
    objective: float
    violation: float  # the certificate over the working set
    gap: float  # the certificate over all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative
    returned: BoolArray  # (d,): which features have returned, and do not leave early again
    # (u + 1) × c: where the last round without extrapolation ended, b below W of the active
    # features. None before there is one.
    ended: FloatArray | None = None
    age: float = 1.0  # of the momentum
    theta_before: AnyArray = np.empty(0)  # (d,): θ of the round before
    rows: BoolArray = np.empty(0, dtype=bool)  # (n,): which samples the rounds run over
    visits: AnyArray = np.empty(0, dtype=np.uint8)  # (n,): how often each sample came to them
    check_at: float = 0.0  # violation at which what was left out is checked


class Point(NamedTuple):
    """Where a round ends, before its labels are completed."""

    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    XtV: FloatArray | None  # d × c: XcᵀV, where the solve knows it
    residual: float


class SRLSRProblem(RowSparseProblem):
    """The data, the step, and the certificate."""

    def __init__(
        self,
        X: Matrix,
        codes: IntArray,
        c: int,
        p: float,
        gamma: float,
        *,
        accelerate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(X, c, **options)
        self.all_X, self.all_codes = X, codes
        self.codes, self.c, self.p, self.gamma = codes, c, p, gamma
        self.accelerate, self.ridge = accelerate, options["ridge"]
        self.class_sizes = class_sizes(codes, c)  # of the labeled samples
        self.n_labeled = int(self.class_sizes.sum())
        self.all_labeled = self.n_labeled == X.shape[0]
        self.theta_moves = accelerate and self.all_labeled and p == 1  # θ has momentum
        self.centering, self.rows = centering(X.shape[0]), np.ones(X.shape[0], dtype=bool)
        smallest = gamma * 10.0 ** (2 * np.log10(X.shape[1]) / p - RANGE)  # of φ
        self.least = smallest ** (p / (2 - p))  # of θ, as a share of the largest

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or 1, with W = 0: the unlabeled rows of Y are at 1/c."""
        if self.accelerate and self.p == 1:
            self.take_rows(self.codes >= 0)
        n, d = self.X.shape
        theta = np.where(self.candidates, 1.0 if theta is None else theta, 0.0)
        if self.accelerate:
            theta = theta / (theta.sum() or 1.0)
        W, b = np.zeros((d, self.c)), np.zeros(self.c)
        sums, XtV = self.sums(self.X, W, b)
        if self.theta_moves:
            theta = np.where(strongest(self.pulls(self.correlations(XtV, sums)), FIRST), theta, 0.0)
        self.XtY, self.Y_norm2 = XtV, float(n - np.sum(self.class_sizes**2) / n)
        self.largest_pull = row_norms(XtV).max()
        never = np.zeros(d, dtype=bool)
        return SRLSRState(
            *(theta, W, b, XtV, sums.V / n, np.inf, np.inf, np.inf, 0.0, never),
            theta_before=theta,
            rows=self.rows,
            visits=np.zeros(len(self.rows), dtype=np.uint8),
            check_at=0.0 if self.rows.all() else CHECK,
        )

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round. θ has momentum where all samples are labeled and p = 1.

        W and b have it where some are not. For p < 1 momentum in θ ends at a worse optimum, and so
        do rounds over some of the samples.
        """
        self.take_rows(state.rows)
        moved = self.go_beyond(state) if self.theta_moves else self.round(state)
        if moved.violation > max(self.tol, state.check_at):
            return moved
        return self.check_inactive(self.check_rows(moved))

    def take_rows(self, rows: BoolArray) -> None:
        """Let the rounds run over these samples alone."""
        if np.array_equal(rows, self.rows):
            return
        self.rows, self.codes = rows, self.all_codes[rows]
        self.X = self.all_X.take_rows(rows)
        self.centering = centering(len(self.codes))
        self.working_set = WorkingSet(self.X, targets=self.c, **self.ridge)

    def check_rows(self, state: SRLSRState) -> SRLSRState:
        """Return the state over the samples that have a part in V, the farthest of them first.

        It takes one pass over X. A sample that comes a second time stays.
        """
        if len(self.codes) == len(self.all_codes):
            return state
        distances = distances_to_simplex(self.all_X, self.all_codes, state.W, state.b)
        off = (distances > OFF_SIMPLEX) | (self.all_codes >= 0)
        new = off & ~state.rows
        room = max(FEWEST_ROWS, 2 * len(self.codes))
        new &= strongest(np.where(new, distances, 0.0), room)
        state = state._replace(check_at=CHECK * state.violation)
        if not new.any() and state.violation <= self.tol:
            return state
        visits = state.visits + new
        rows = (state.rows & (off | (visits > 1))) | new
        self.take_rows(rows)
        end = Point(state.W, state.b, None, state.residual)
        return self.evaluate(end, state._replace(rows=rows, visits=visits, age=1.0))

    def round(self, state: SRLSRState) -> SRLSRState:
        """Run one round from its θ. A shortcut that raises the objective is taken back."""
        if self.theta_moves:
            state = state._replace(theta=state.theta / state.theta.sum())
        end = self.solve(state)
        age, momentum = next_momentum(state.age)
        if self.accelerate and np.isfinite(state.objective):
            beyond = without(self.beyond(state, end, momentum), self.leaving(state, end.W))
            if beyond is not end:
                next_state = self.evaluate(beyond, state)
                if next_state.objective <= state.objective:
                    return self.with_end(next_state, end, age)
                age = max(1.0, RESTART * state.age)
        next_state = self.evaluate(end, state)
        new = (state.theta > 0) & ~state.W.any(axis=1)  # features that have just returned
        if next_state.objective > state.objective and new.any():
            theta = np.where(new, RETREAT * state.theta, state.theta)
            theta[new & (theta < max(RETREAT_END, self.least))] = 0
            return self.round(state._replace(theta=theta / theta.sum()))
        return self.with_end(next_state, end, age)

    def solve(self, state: SRLSRState) -> Point:
        """Return the W and b that are best for the θ and the labels of the state.

        With W + D in the place of W, the rhs of the solve is XcᵀV − γ diag(1/φ) W.
        """
        u, active = self.penalties(state.theta), np.flatnonzero(state.theta)
        finite = np.where(state.theta > 0, u, 0.0)[:, None]
        solution = self.working_set.solve_rhs(
            self.centering, u, lambda rows: state.XtV[rows] - finite[rows] * state.W[rows]
        )
        W, XtV = solution.W, None
        b = state.b + state.mean_V - self.X.means @ W
        W[active] += state.W[active]
        if self.all_labeled and self.is_known(u[active] * row_norms(state.W[active])):
            XtV = solution.product
            XtV[active] = state.XtV[active] - XtV[active]
        return Point(W, b, XtV, solution.residual)

    def is_known(self, pulls: FloatArray) -> bool:
        """Return whether double precision holds the XcᵀV of rows of weights with these pulls."""
        return bool(pulls.max(initial=0.0) <= ROUNDING * self.largest_pull)

    def evaluate(self, point: Point, before: SRLSRState) -> SRLSRState:
        """Return the state at a point, whose labels it completes.

        It takes one pass over the matrix of the working set. Where all samples are labeled and the
        solve knows XcᵀV, none is needed: ‖V‖² = ‖Yc‖² − ⟨XcᵀY + XcᵀV, W⟩.
        """
        theta = self.theta(point.W)
        W, XtV = point.W, point.XtV
        W[theta == 0] = 0
        if XtV is None:
            sums, XtV = self.sums(self.working_set.X, self.working_set.own_rows(W), point.b)
            XtV = self.working_set.all_rows(XtV)
        else:
            active = np.flatnonzero(theta)
            fitted = float(np.vdot(self.XtY[active], W[active]))
            norm2 = self.Y_norm2 - fitted - float(np.vdot(XtV[active], W[active]))
            zero = np.zeros(self.c)
            sums = LabelSums(zero, zero, norm2, self.Y_norm2 - fitted, 0.0, XtV)
        objective = sums.V_norm2 + self.gamma * norm_2p(W, self.p) ** 2
        state = before._replace(
            theta=theta,
            W=W,
            b=point.b,
            XtV=XtV,
            mean_V=sums.V / self.X.shape[0],
            objective=objective,
            gap=np.inf,
            residual=point.residual,
            ended=None,
        )
        state = state._replace(violation=self.violation(state, sums))
        if point.XtV is not None and state.violation <= self.tol:  # so far by the solve's claim
            return self.evaluate(point._replace(XtV=None), before)
        return state

    def with_end(self, state: SRLSRState, end: Point, age: float) -> SRLSRState:
        """Return the state with the end of the round that led to it, of which momentum starts."""
        if not self.accelerate or self.all_labeled:
            return state
        ended = np.vstack([end.W[state.theta > 0], end.b])
        return state._replace(ended=ended, age=age)

    def beyond(self, state: SRLSRState, end: Point, momentum: float) -> Point:
        """Return the point beyond the end of a round, as seen from the end of the last one.

        For p < 1 the lengths of the rows continue by a factor, as a round changes them.
        """
        if state.ended is None or momentum == 0:
            return end
        active = np.flatnonzero(state.theta)
        here, last = end.W[active], state.ended[:-1]
        rows = here + momentum * (here - last)
        if self.p < 1:
            lengths = extrapolate(row_norms(here), row_norms(last), momentum)
            sizes = row_norms(rows)
            rows *= np.divide(lengths, sizes, out=np.zeros_like(sizes), where=sizes > 0)[:, None]
        W = engine.lazy_zeros(end.W.shape)
        W[active] = rows
        return Point(W, end.b + momentum * (end.b - state.ended[-1]), None, end.residual)

    def sums(self, X: Matrix, W: FloatArray, b: FloatArray) -> tuple[LabelSums, FloatArray]:
        """Return the sums at (W, b) and XcᵀV, for the columns of X. One pass."""
        sums = sum_samples(X, self.codes, W, b)
        subtract_product(sums.product, X.means[:, None], sums.V[None])
        return sums, sums.product

    def penalties(self, theta: FloatArray) -> FloatArray:
        """Return γ/φ with φ = θ^(2/p − 1). It is infinite where a feature is inactive."""
        with np.errstate(divide="ignore"):
            return self.gamma / theta ** (2 / self.p - 1)

    def theta(self, W: FloatArray) -> FloatArray:
        """Return ‖w_j‖ᵖ / Σ‖w‖ᵖ, and 0 for the features that became negligible."""
        weights = row_norms(W) ** self.p
        self.require_weight(weights)
        weights = without_negligible(weights, max(NEGLIGIBLE, self.least))
        return weights / weights.sum()

    def violation(self, state: SRLSRState, sums: LabelSums) -> float:
        """Return the violation of stationarity (p < 1) or the duality gap (p = 1).

        Only the features of the working set count.
        """
        active, penalties = np.flatnonzero(state.theta), self.penalties(state.theta)[:, None]
        strips = [active[first : first + STRIP] for first in range(0, len(active), STRIP)]
        if self.p == 1:
            pulls = [row_norms(self.correlations(state.XtV[rows], sums, rows)) for rows in strips]
            return self.duality_gap(max(part.max() for part in pulls), sums, state.objective)
        slopes = (state.XtV[rows] - penalties[rows] * state.W[rows] for rows in strips)
        norms = row_norms(state.W)[active]
        penalty = self.gamma * norm_2p(norms[:, None], self.p) ** 2
        return float(norms @ np.concatenate([row_norms(slope) for slope in slopes]) / penalty)

    def correlations(self, XtV: FloatArray, sums: LabelSums, rows: Any = ...) -> FloatArray:
        """Return rows of XᵀV of the V that bounds the optimum, from those of XcᵀV.

        The mean of this V is taken from its labeled rows alone, so that it is zero and min_k v_ik
        stays as it is in the others.
        """
        if self.all_labeled:
            return XtV
        shift = sums.V / self.n_labeled
        return XtV + np.outer(self.X.means[rows], sums.V) - np.outer(self.labeled_X[rows], shift)

    @cached_property
    def labeled_X(self) -> FloatArray:
        """The sum of the labeled samples (d). Reads X once."""
        return np.asarray(self.X.T @ (self.codes >= 0).astype(np.float64))

    def duality_gap(self, largest_correlation: float, sums: LabelSums, objective: float) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        shift = sums.V / self.n_labeled
        a = 2 * (sums.labeled_VY - shift @ self.class_sizes) + 2 * sums.least_V
        V_norm2 = sums.V_norm2 - 2 * shift @ sums.labeled_V + self.n_labeled * shift @ shift
        q = float(V_norm2) + largest_correlation**2 / self.gamma
        lower = max(float(a), 0.0) ** 2 / (4 * q) if q > 0 else 0.0  # V = 0 bounds it by 0
        return float((objective - lower) / objective) if objective > 0 else 0.0

    def leaving(self, state: SRLSRState, W: FloatArray) -> BoolArray:
        """Return the mask of the features that leave: those that were best at zero and shrank."""
        active = np.flatnonzero((state.theta > 0) & ~state.returned)
        norms, squares = row_norms(state.W[active]), self.squares[active]
        pulls = row_norms(state.XtV[active] + squares[:, None] * state.W[active])
        slope = self.slope(self.total(state) - norms**self.p)
        alone = norm_alone(pulls, squares, slope, self.p)
        leaves = active[(alone == 0) & (row_norms(W[active]) < norms)]
        leaves = leaves[np.argsort(state.theta[leaves], kind="stable")]
        leaves = leaves[np.cumsum(state.theta[leaves]) <= LEAVING_SHARE]
        return np.isin(np.arange(len(W)), leaves)

    def total(self, state: SRLSRState) -> float:
        """Return Σ_j ‖w_j‖ᵖ."""
        return float(np.sum(row_norms(state.W) ** self.p))

    def slope(self, rest: Any) -> Any:
        """Return the slope of the penalty in ‖w_j‖ᵖ at zero, where Σ‖w‖ᵖ of the others is `rest`.

        The penalty is convex in ‖w_j‖ᵖ, so it is at least its tangent there.
        """
        return 2 * self.gamma / self.p * np.maximum(rest, 0.0) ** (2 / self.p - 1)

    @property
    def squares(self) -> FloatArray:
        """‖x_j‖² of the centered features (d,)."""
        return np.asarray(self.X.deviations)

    def measure(self, state: SRLSRState) -> Record:
        return super().measure(state) | {"samples": float(np.count_nonzero(state.rows))}

    def check_inactive(self, state: SRLSRState) -> SRLSRState:
        """Return the state with its gap over all features, once the working set is solved.

        Inactive features that violate optimality (p = 1), or whose return would lower the objective
        with all else fixed (p < 1), return to θ. It takes one pass over X. For p < 1 none returns
        where what each would gain adds up to less than the tolerance, and none in the plain rounds,
        because a feature at zero is stationary.
        """
        sums, XtV = self.sums(self.X, state.W, state.b)
        state, gap = state._replace(XtV=XtV), state.violation
        inactive = (state.theta == 0) & self.candidates
        pulls = self.pulls(XtV)
        slope = self.slope(self.total(state))
        alone = norm_alone(pulls, self.squares, slope, self.p)
        if self.p == 1:
            correlations = self.pulls(self.correlations(XtV, sums))
            gap = self.duality_gap(correlations.max(), sums, state.objective)
            beyond = inactive & (correlations > correlations[~inactive].max())
            room = max(FEWEST_NEW, 2 * int(np.count_nonzero(state.theta)))
            beyond &= strongest(np.where(beyond, correlations, 0.0), room)
            least = RETURN_SHARE * row_norms(state.W).max()
            lengths = np.where(beyond, np.maximum(alone, least), 0.0)
            solved = gap <= self.tol
        else:
            lengths = np.where(inactive & ~state.returned & self.accelerate, alone, 0.0)
            gains = lengths * (2 * pulls - self.squares * lengths) - slope * lengths**self.p
            solved = gains.sum() <= self.tol * state.objective
        if solved or not lengths.any():
            return state._replace(gap=gap)
        weights, share = row_norms(state.W) ** self.p, lengths**self.p
        weights = weights + share * min(1.0, weights.sum() / share.sum())
        return state._replace(
            theta=weights / weights.sum(),
            gap=gap if self.p == 1 else np.inf,
            returned=state.returned | (lengths > 0),
            ended=None,
            age=1.0,
        )

    def scores(self, state: SRLSRState) -> FloatArray:
        """Return the score of each feature. XcᵀV of a solved run has all rows."""
        XtV = state.XtV
        if not state.gap <= self.tol:
            self.take_rows(state.rows)
            _, XtV = self.sums(self.X, state.W, state.b)
        theta = np.where(state.W.any(axis=1), state.theta, 0.0)
        return inactive_scores(theta, self.pulls(XtV))


def strongest(pulls: FloatArray, m: int) -> BoolArray:
    """Return the mask of the m features of the largest pulls, and of those equal to the last."""
    return pulls >= (np.partition(pulls, -m)[-m] if m < len(pulls) else 0.0)


def without(point: Point, features: BoolArray) -> Point:
    """Return a point where these features are at zero."""
    if not features.any():
        return point
    W = point.W.copy()
    W[features] = 0
    return point._replace(W=W, XtV=None)


# --- estimator ------------------------------------------------------------------------------------


class SRLSR(RowSparseSelector):
    """Choose features by their share of a row-sparse classifier, from few or all labels.

    Sparse rescaled linear square regression [1]_ learns the classifier and the labels of the
    unlabeled samples together. In an array y, −1 means unlabeled unless y holds nothing but −1 and
    1.

    Parameters
    ----------
    p : float, default=0.7
        Exponent of the penalty ‖W‖²₂,ₚ, in (0, 1]. A smaller p leaves fewer features with a weight.
        Below 1 the answer is a local optimum.
    gamma : float, default=1e-6
        Weight of the penalty. About γ^(−p/2) features keep a weight, up to a factor that depends on
        the data. For 500 features of a text corpus, start at 1e-8 with p = 0.5 and at 1e-3 with p =
        1.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ, of which the ratios count. None takes the same for every feature. For p =
        1 it does not change the answer.
    solver_tol : float, default=0.1
        Share of the residual that a round begins with, at which the solver "cg" stops. A small one
        takes more passes, and for p below 1 it may end at another local optimum.
    accelerate : bool, default=True
        Whether the first θ is scaled to add up to 1, features leave the working set as soon as
        their weights shrink fast, and rounds go beyond their ends. That takes fewer rounds and far
        fewer passes. False is the paper's algorithm, which for p below 1 may end at another local
        optimum.
    tol : float, default=1e-2
        Relative duality gap (p = 1) or violation of stationarity (p < 1) at which to stop. For p
        below 1, features that left too early stay out if what each would lower the objective by
        adds up to less than this share of it.

    Attributes
    ----------
    %(rescaled_fitted)s

    See Also
    --------
    RLSR : The convex case p = 1.
    JHLSR : Learn a hypergraph of the samples too.
    SparGE : With `embedding="sda"`, choose features from few labels and a kNN graph.

    Notes
    -----
    The problem is eq. 50 of [1]_, corrected: the penalty is squared. The minimum is over W, b, and
    the rows of Y of the unlabeled samples on the simplex::

        min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ

    Each round solves one ridge problem and never raises the objective after the first round.

    References
    ----------
    .. [1] X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse
       rescaled linear square regression", IEEE Transactions on Knowledge and Data Engineering,
       2018, eq. 50 and Alg. 1.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SRLSR
    >>> few = y.copy()
    >>> few[::2] = -1
    >>> selector = SRLSR(n_features_to_select=2, gamma=1e-2).fit(X, few)
    >>> selector.selected_
    array([3, 1])
    >>> round(float((selector.predict(X) == y).mean()), 2)
    0.83
    """

    p: float = 0.7
    gamma: float = 1e-6
    start: Any = None
    solver: str = "auto"
    solver_tol: float = 0.1
    solver_max_iter: int = 100
    accelerate: bool = True
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("1 per round and CG step, then 0", "15 d c + columns")
    _parameter_constraints: ClassVar[Allowed] = {
        "p": [Interval(Real, 0, 1, closed="right")],
        "start": ["array-like"],
    }
    _needs_one_scale = True
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        c = len(self.classes_)
        self._require_range(X.shape[1] - len(self._constraints.absent))
        near = X.near_zero()
        options = self._options(reduction=self.solver_tol) | {"accelerate": self.accelerate}
        problem = SRLSRProblem(near, codes, c, self.p, self.gamma, **options)
        state = self._solve(problem, problem.start(self._checked_start(X.shape[1])))
        self.theta_, self.coef_ = np.where(state.W.any(axis=1), state.theta, 0.0), state.W
        self.intercept_ = state.b - X.near_numbers @ state.W
        if 8 * X.shape[0] * c <= LABELS_SHARE * engine.memory_limit():
            self.label_distributions_ = complete_labels(near, codes, state.W, state.b)

    def __getattr__(self, name: str) -> Any:
        """Say why the labels of the samples are not there."""
        if name == "label_distributions_" and "theta_" in vars(self):
            raise AttributeError(
                "label_distributions_ was not made, because the labels of all samples would take "
                f"more than {LABELS_SHARE:.0%} of the memory limit: raise the limit, or predict "
                "the samples that are needed"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _require_range(self, d: int) -> None:
        """Refuse a p and a γ with which γ d^(2/p) is beyond double precision for d features."""
        exponent = 2 * np.log10(d) / self.p  # of d^(2/p)
        if exponent > LARGEST:
            least = 2 * np.log10(d) / LARGEST
            raise ValueError(
                f"p must be at least {least:.4f} for the penalty of {d} features; got {self.p:g}"
            )
        if exponent + np.log10(self.gamma) > LARGEST:
            raise ValueError(
                f"gamma must be at most 1e{int(LARGEST - exponent):+} for {d} features and "
                f"p={self.p:g}; got {self.gamma:g}"
            )

    def _checked_start(self, d: int) -> FloatArray | None:
        if self.start is None:
            return None
        start = np.asarray(self.start, dtype=np.float64)
        if start.shape != (d,) or not np.all((start > 0) & np.isfinite(start)):
            raise ValueError(
                f"start must hold {d} positive numbers, one per feature; got shape {start.shape}"
            )
        return start / start.max()

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each sample, the one of the largest x W + b.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples with the features seen during `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The predicted class labels.
        """
        matrix, active = self._samples(X), np.flatnonzero(self.theta_)
        decision = matrix.columns(active) @ self.coef_[active] + self.intercept_
        return np.asarray(self.classes_[np.argmax(decision, axis=1)])


class RLSR(SRLSR):
    """Choose features by the convex case p = 1 of `SRLSR`.

    The optimum does not depend on the start, and a duality gap certifies it. In an array y, −1
    means unlabeled unless y holds nothing but −1 and 1.

    Parameters
    ----------
    gamma : float, default=1e-3
        Weight of the penalty. About γ^(−1/2) features keep a weight, up to a factor that depends on
        the data.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ, of which the ratios count. None takes the same for every feature. It does
        not change the answer.
    solver_tol : float, default=0.1
        Share of the residual that a round begins with, at which the solver "cg" stops. A small one
        takes more passes.
    accelerate : bool, default=True
        Whether the first θ is scaled to add up to 1, features leave the working set as soon as
        their weights shrink fast, rounds go beyond their ends, and they run over the labeled
        samples and those whose prediction is off the simplex. That takes fewer rounds and far fewer
        passes. The answer is within `tol` of the same optimum.

    Attributes
    ----------
    %(rescaled_fitted)s

    See Also
    --------
    SRLSR : The same method with p up to 1, for fewer features.
    SparGE : Choose exactly m features together.

    Notes
    -----
    The minimum is over W, b, and the rows of Y of the unlabeled samples on the simplex (eq. 50 of
    [1]_ with p = 1, corrected)::

        min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,₁

    References
    ----------
    .. [1] X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse
       rescaled linear square regression", IEEE Transactions on Knowledge and Data Engineering,
       2018.

    Examples
    --------
    %(iris)s
    >>> from bigfs import RLSR
    >>> selector = RLSR(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    """

    p: ClassVar[float] = 1.0  # type: ignore[misc]  # no parameter here
    gamma: float = 1e-3
