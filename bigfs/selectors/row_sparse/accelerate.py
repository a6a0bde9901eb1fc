"""Faster rounds of SRLSR and JHLSR, which leave out features before their weights are negligible.

SRLSR starts from shares of θ that add up to 1, as those of all later rounds do: 1/d of each of d
features where none are given. The plain rounds begin with φ = 1, which for p = 0.7 and 47,000
features is a penalty 5·10⁸ times weaker. CG takes 100 steps for a W that the next round forgets.

Two more shortcuts follow, which a round takes back if they raise the objective:

* **Features leave early.** Without the other features, the next round multiplies ‖w_j‖ by

      φ_j ‖x_jᵀV‖ / γ‖w_j‖

  A feature whose factor is below `SHRINKING` leaves the working set, at most `LEAVING_SHARE` of θ
  per round. For p < 1 the factor falls with θ_j, so a feature that shrinks goes on to shrink. Once
  the others are solved, one pass checks all features that left: for p = 1 by the duality gap, as
  always. For p < 1 a feature returns with the θ_j with which it left, if the objective is then
  lower. A feature that has returned does not leave early again.
* **Momentum.** Once a round has lowered the objective by no more than `SETTLED`, (W, b) is

      (1 + β) G_t − β G_{t−1}

  where G_t is the end of round t. The labels of a round are those of the round before. So rounds
  approach their limit slowly where few samples are labeled, always from one side. β is Nesterov's:
  it grows with the rounds, and falls back where it raises the objective.

The objective falls in every round after the first, but for p = 1 where features return, as in the
plain rounds. The stop is theirs too.

In JHLSR, with all else fixed, s_j = 0 lowers the objective the most if

    ‖2x_jᵀV + 2 x_jᵀ diag(AᵀA + μ) x_j s_j‖ ≤ λ

where diag(AᵀA + μ) is at least AᵀA + μL_H. The plain rounds shrink such a row by a factor, so most
rows take many rounds to vanish. Here the features for which it held at the end of the last round
leave at once, if their rows have shrunk. A round that raises the objective by it takes it back.
The check of all features at the end lets those return that left too early, and they do not leave
early again. Many that return together may overshoot: a round that raises the objective by them
starts again from a tenth of their θ. The logarithm of θ has momentum, as in RFS.
"""

from __future__ import annotations

import numpy as np

from bigfs import engine
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.cg import STRIP
from bigfs.selectors.row_sparse.jhlsr_problem import JHLSRProblem, JHLSRState
from bigfs.selectors.row_sparse.label_sums import LabelSums
from bigfs.selectors.row_sparse.rows import extrapolated, next_momentum
from bigfs.selectors.row_sparse.srlsr import Point, SRLSRProblem, SRLSRState
from bigfs.types import BoolArray, FloatArray

SHRINKING = 0.25  # factor of ‖w_j‖ in a round, below which a feature leaves early
LEAVING_SHARE = 0.3  # of θ's mass: what leaves early in one round
MOST_RETURNED = 0.5  # of θ's mass: what features that return get together
ACCURATE = 0.1  # residual of the ridge solve above which a round does not tell what shrinks
SETTLED = 2e-3  # of the objective: how much a round lowers it when momentum starts
RESTART = 0.5  # of the momentum's age: what is left where it raises the objective
RETREAT = 0.1  # factor of the θ of features whose return raises the objective
RETREATS = 8  # at most, in one round


class AcceleratedSRLSR(SRLSRProblem):
    """The problem of SRLSR, with a step that takes the shortcuts above."""

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or equal shares, from which no feature has left."""
        state = super().start(theta)
        left = np.zeros(self.X.shape[1])
        return state._replace(theta=state.theta / (state.theta.sum() or 1.0), left=left)

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round. A shortcut that raises the objective is taken back."""
        gone = self.just_left(state)
        # the rows of what has just left are no start of which the product is known
        end = self.solve(state, knows_product=not gone.any())
        if state.ended is not None:
            age, momentum = next_momentum(state.age)
            completed = self.complete(self.extrapolate(state, state.ended, end, momentum))
            if completed[0].objective <= state.objective:
                return self.with_next_working_set(state._replace(age=age), end, *completed)
            state = state._replace(age=max(1.0, RESTART * state.age))
        completed = self.complete(end)
        if completed[0].objective > state.objective:
            if gone.any():
                return self.step(self.consistent(state))
            returned = (state.theta > 0) & ~state.W.any(axis=1)  # at the end of the last round
            if self.p < 1 and returned.any():  # for p = 1 the gap would return them again
                theta = np.where(returned, 0.0, state.theta)
                left = np.where(returned, 0.0, state.left)
                return self.step(state._replace(theta=theta / theta.sum(), left=left, ended=None))
        return self.with_next_working_set(state, end, *completed)

    def extrapolate(
        self, state: SRLSRState, ended: FloatArray, end: Point, momentum: float
    ) -> Point:
        """Return the point beyond the end of a round, as seen from the end of the last one."""
        active = state.theta > 0
        W, XtXW = engine.lazy_zeros((2, *end.W.shape))
        W[active] = end.W[active] + momentum * (end.W[active] - ended[0, :-1])
        XtXW[active] = end.XtXW[active] + momentum * (end.XtXW[active] - ended[1, :-1])
        return Point(W, end.b + momentum * (end.b - ended[0, -1]), XtXW, end.residual)

    def with_next_working_set(
        self, before: SRLSRState, end: Point, state: SRLSRState, sums: LabelSums
    ) -> SRLSRState:
        """Return the state without the features that shrink, or with those that have to return."""
        state = self.check_inactive(state._replace(left=before.left, age=before.age), sums)
        if state.violation <= self.tol:
            return state  # it is solved, or features have returned, of which the end knows nothing
        # the first round solves for φ = 1, and says nothing on what shrinks
        if np.isfinite(before.objective) and end.residual <= ACCURATE:
            state = self.without_shrinking(state)
        if not before.objective - state.objective <= SETTLED * state.objective:
            return state
        active = state.theta > 0
        points = np.vstack([end.W[active], end.b]), np.vstack([end.XtXW[active], 0 * end.b])
        return state._replace(ended=np.stack(points))

    def without_shrinking(self, state: SRLSRState) -> SRLSRState:
        """Return the state without the features that shrink, those of least θ first."""
        active = np.flatnonzero(state.theta)
        XtV = self.centered(state.XtY, state.mean_Y, active) - state.XtXW[active]
        factors = row_norms(XtV) / (
            self.penalties(state.theta)[active] * row_norms(state.W[active])
        )
        left = state.left.copy()
        leaving = active[(factors < SHRINKING) & (left[active] == 0)]
        leaving = leaving[np.argsort(state.theta[leaving], kind="stable")]
        leaving = leaving[np.cumsum(state.theta[leaving]) <= LEAVING_SHARE]
        theta = state.theta.copy()
        left[leaving], theta[leaving] = theta[leaving], 0.0
        return state._replace(theta=theta / theta.sum(), left=left)

    def check_inactive(self, state: SRLSRState, sums: LabelSums) -> SRLSRState:
        """Return the state with its gap over all features, once the working set is solved.

        Features that left too early return to θ.
        """
        if self.p == 1:
            checked = super().check_inactive(state, sums)
            left = np.where((checked.theta > 0) & (state.theta == 0), -1.0, state.left)
            return checked._replace(left=left)
        if state.violation > self.tol or not (state.left > 0).any():
            return state._replace(gap=state.violation)
        XtV = self.centered_residuals(state)
        lowering = self.would_lower(state, XtV)
        if not lowering.any():
            return state._replace(gap=state.violation)
        state = self.with_share(state, np.where(lowering, state.left, 0.0))
        return self.with_returned(state._replace(gap=np.inf), XtV)

    def would_lower(self, state: SRLSRState, XtV: FloatArray) -> BoolArray:
        """Return the mask of the features that left whose return lowers the objective.

        The row of such a feature is a multiple t of x_jᵀV / ‖x_jᵀV‖ with the θ_j with which it
        left. It changes the loss by −2t‖x_jᵀV‖ + t²‖x_j‖², where x_j is centered.
        """
        left = np.maximum(state.left, 0.0)
        weights = np.sum(row_norms(state.W) ** self.p)
        own = weights * left / (1 - left)  # tᵖ
        t, squares = own ** (1 / self.p), self.X.stats.sums_of_squares
        squares = np.maximum(squares - self.X.shape[0] * self.X.means**2, 0.0)
        loss = t**2 * squares - 2 * t * row_norms(XtV)
        penalty = (weights + own) ** (2 / self.p) - weights ** (2 / self.p)
        # the penalty of a feature that did not leave is a rounding error
        lowering: BoolArray = (left > 0) & (loss + self.gamma * penalty < 0)
        return lowering

    def with_share(self, state: SRLSRState, share: FloatArray) -> SRLSRState:
        """Return the state where some features have the given `share` (d,) of θ.

        They do not leave early again. Shares of features that left in different rounds may add up
        to more than 1, so they are scaled to at most `MOST_RETURNED` together.
        """
        share = share * min(1.0, MOST_RETURNED / max(share.sum(), MOST_RETURNED))
        theta = state.theta * (1 - share.sum()) + share
        left = np.where(share > 0, -1.0, state.left)
        return state._replace(theta=theta, left=left, ended=None)

    def just_left(self, state: SRLSRState) -> BoolArray:
        """Return the mask of the features that left at the end of the last round."""
        left: BoolArray = (state.left > 0) & (state.theta == 0) & state.W.any(axis=1)
        return left

    def consistent(self, state: SRLSRState) -> SRLSRState:
        """Return the state before the last features left, because W still has their rows."""
        return self.with_share(state, np.where(self.just_left(state), state.left, 0.0))


class AcceleratedJHLSR(JHLSRProblem):
    """The problem of JHLSR, with momentum and with a step that lets features leave early."""

    def start(self) -> JHLSRState:
        """Return the first state, from which no feature has returned."""
        state = super().start()
        never = np.zeros(len(state.theta), dtype=bool)
        return state._replace(theta_before=state.theta, returned=never)

    def step(self, state: JHLSRState) -> JHLSRState:
        """Run one round beyond the end of the last one, or from it if that raises the objective."""
        age, momentum = next_momentum(state.age)
        theta = extrapolated(state.theta, state.theta_before, momentum)
        end = self.round(state._replace(theta=theta))
        if momentum and not end.objective <= state.objective:
            end, age = self.round(state), 1.0
        returned = state.returned | (state.theta == 0) & (end.theta > 0)
        return end._replace(theta_before=state.theta, returned=returned, age=age)

    def round(self, state: JHLSRState) -> JHLSRState:
        """Run one round. What raises the objective is taken back: features that leave early stay,
        and those that have just returned start nearer to zero."""
        S, residual = self.solve(state)
        leaving = self.leaving(state, S)
        S[leaving] = 0
        end = self.complete(state, S, residual)
        if leaving.any() and end.objective > state.objective:
            end = super().step(state)
        new = (state.theta > 0) & ~state.S.any(axis=1)
        for _ in range(RETREATS):
            if not (end.objective > state.objective and new.any()):
                break
            state = state._replace(theta=np.where(new, RETREAT * state.theta, state.theta))
            end = super().step(state)
        return end

    def leaving(self, state: JHLSRState, S: FloatArray) -> BoolArray:
        """Return the mask of the features that leave: those that were best at zero and shrank."""
        leaving = np.zeros(len(S), dtype=bool)
        if not np.isfinite(state.objective):  # the first round, before which there is no V
            return leaving
        for first in range(0, len(S), STRIP):
            rows = slice(first, min(first + STRIP, len(S)))
            XtV = self.response(state, rows.start, rows.stop) - state.product[rows]
            pull = row_norms(XtV + self.squares[rows, None] * state.S[rows])
            leaving[rows] = (2 * pull <= self.lam) & (row_norms(S[rows]) < row_norms(state.S[rows]))
        return leaving & (state.theta > 0) & ~state.returned
