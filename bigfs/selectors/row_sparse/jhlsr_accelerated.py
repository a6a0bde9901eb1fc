"""Rounds of JHLSR that leave out the features that are best at zero.

With all else fixed, s_j = 0 lowers the objective the most if

    ‖2x_jᵀV + 2 x_jᵀ diag(AᵀA + μ) x_j s_j‖ ≤ λ

where diag(AᵀA + μ) is at least AᵀA + μL_H. The plain rounds shrink such a row by a factor, so most
rows take many rounds to vanish. Here the features for which it held at the end of the last round
leave at once, if their rows have shrunk. A round that raises the objective by it takes it back.
The check of all features at the end lets those return that left too early.
"""

from __future__ import annotations

import numpy as np

from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.cg import STRIP
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.selectors.row_sparse.jhlsr_problem import JHLSRProblem, JHLSRState
from bigfs.types import BoolArray, FloatArray


class AcceleratedJHLSR(JHLSRProblem):
    """The problem of JHLSR, with a step that lets features leave early."""

    def step(self, state: JHLSRState, working_set: WorkingSet) -> JHLSRState:
        """Run one round. If it raises the objective to let features leave, they stay."""
        S, residual = self.solve(state, working_set)
        leaving = self.leaving(state, S)
        S[leaving] = 0
        end = self.complete(state, S, residual, working_set)
        if leaving.any() and end.objective > state.objective:
            return super().step(state, working_set)
        return end

    def leaving(self, state: JHLSRState, S: FloatArray) -> BoolArray:
        """Return the mask of the features that leave: those that were best at zero and shrank."""
        leaving = np.zeros(len(S), dtype=bool)
        if not np.isfinite(state.objective):  # the first round, before which there is no V
            return leaving
        active = np.isfinite(state.u)
        for first in range(0, len(S), STRIP):
            rows = slice(first, min(first + STRIP, len(S)))
            XtV = self.response(state, rows.start, rows.stop) - state.product[rows]
            pull = row_norms(XtV + self.squares[rows, None] * state.S[rows])
            leaving[rows] = (2 * pull <= self.lam) & (row_norms(S[rows]) < row_norms(state.S[rows]))
        return active & leaving
