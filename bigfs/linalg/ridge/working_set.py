"""The working set of active features.

Once its columns fit in memory they are gathered, and later solves no longer read the corpus.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigfs import engine
from bigfs.linalg.ridge import Ridge, SampleOperator, Solution
from bigfs.linalg.ridge.plan import ITERATIONS
from bigfs.matrix import Matrix
from bigfs.types import FloatArray, IntArray

MEMORY_SHARE = 0.25  # share of the memory limit that a gathered working set may take
DENSE_ABOVE = 0.3  # share of non-zeros above which a dense array is smaller and faster


class WorkingSet:
    """Solve ridge systems over the active features, those with finite u.

    Their columns are gathered in memory if they fit. Each set of features has a plan of its own.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples.
    **ridge : object
        Parameters of `Ridge`.

    Attributes
    ----------
    plans : list of dict
        One entry per working set so far: the number of "features", whether they were "gathered",
        and the "plan".
    """

    def __init__(self, X: Matrix, **ridge: Any) -> None:
        self.full, self._ridge_options = X, ridge
        self._index: IntArray | None = None  # of the gathered columns; None: the full matrix
        self._M: SampleOperator | None = None
        self._ridge: Ridge | None = None
        self._iterations = ITERATIONS
        self.plans: list[dict[str, Any]] = []

    def solve(
        self, M: SampleOperator, u: FloatArray, T: FloatArray, start: FloatArray | None = None
    ) -> Solution:
        """Return W = (XᵀMX + diag u)⁻¹ XᵀT for u of shape (d,).

        A weight inf drops its feature, and its row of W is zero.
        """
        active = np.flatnonzero(np.isfinite(u))
        ridge = self._ridge_on(active, M)
        if self._index is None:
            solution = ridge.prepare(u).solve(T, start)
            self._record_iterations(solution, start)
            return solution
        solution = ridge.prepare(u[active]).solve(T, None if start is None else start[active])
        self._record_iterations(solution, start)
        W = np.zeros((len(u), T.shape[1]))
        W[active] = solution.W
        return Solution(W, solution.residuals, solution.iterations)

    def times(self, W: FloatArray) -> FloatArray:
        """Return X W for a W that is zero outside the working set."""
        return self.full @ W if self._index is None else self.X @ W[self._index]

    def transposed_times(self, V: FloatArray) -> FloatArray:
        """Return XᵀV (d × r). Rows of features that were not gathered are zero."""
        if self._index is None:
            return self.X.T @ V
        G = np.zeros((self.full.shape[1], V.shape[1]))
        G[self._index] = self.X.T @ V
        return G

    @property
    def X(self) -> Matrix:
        """The matrix of the last solve: the gathered columns, or the full matrix."""
        return self.full if self._ridge is None else self._ridge.X

    def _ridge_on(self, active: IntArray, M: SampleOperator) -> Ridge:
        """Return the last ridge if it serves these features and M, else a new one."""
        last, last_index = self._ridge, self._index
        same = last is not None and (
            not self._fits(active) if last_index is None else np.array_equal(active, last_index)
        )
        if last is not None and same and M is self._M:
            return last
        X = self.X if same else self._gather(active)
        ridge = Ridge(X, M, iterations=self._iterations, **self._ridge_options)
        if last is not None and M is self._M:
            ridge.reuse_gram_of(last, last_index, self._index)
        if not same:
            self.plans.append(
                {"features": len(active), "gathered": self._index is not None, "plan": ridge.plan}
            )
        self._ridge, self._M = ridge, M
        return ridge

    def _record_iterations(self, solution: Solution, start: FloatArray | None) -> None:
        """Expect as many CG iterations in the next plan as in the last solve with a warm start."""
        if (
            start is not None
            and start.any()
            and self._ridge is not None
            and self._ridge.plan.solver == "cg"
        ):
            self._iterations = max(solution.iterations, 1)

    def _bytes(self, active: IntArray) -> int:
        """Return the bytes of these columns in float64: in both sparse layouts, or dense."""
        return min(
            24 * int(self.full.stats.nnz[active].sum()), 8 * self.full.shape[0] * len(active)
        )

    def _fits(self, active: IntArray) -> bool:
        return self._bytes(active) <= MEMORY_SHARE * (
            self._ridge_options.get("limit") or engine.memory_limit()
        )

    def _gather(self, active: IntArray) -> Matrix:
        """Gather these columns if they fit, else return the full matrix."""
        if not self._fits(active):
            self._index = None
            return self.full
        if self._index is not None and np.isin(active, self._index, assume_unique=True).all():
            columns = self.X.columns(np.searchsorted(self._index, active))
        else:
            columns = self.full.columns(active)
        self._index = active
        dense = columns.nnz > DENSE_ABOVE * columns.shape[0] * max(columns.shape[1], 1)
        return Matrix.from_array(
            columns.toarray().astype(np.float64) if dense else columns.astype(np.float64)
        )
