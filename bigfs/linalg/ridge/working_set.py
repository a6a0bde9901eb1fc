"""The features still in play.

Once they fit in memory they are gathered there, and later solves read nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigfs import engine
from bigfs.linalg.ridge import Middle, Ridge, Solution
from bigfs.linalg.ridge.plan import ITERATIONS
from bigfs.matrix import Matrix
from bigfs.types import FloatArray, IntArray

SHARE = 0.25  # of the memory limit that a gathered working set may take
DENSE = 0.3  # share of non-zeros from which a dense array is smaller and faster


class WorkingSet:
    """Ridge solves over the features of finite u, gathered in memory where they fit.

    Parameters are those of `Ridge`; a plan is made anew for each set of features.

    Attributes
    ----------
    plans : the way used for each working set so far: (number of features, gathered, `Plan`).
    """

    def __init__(self, X: Matrix, **ridge: Any) -> None:
        self.whole, self._ridge_options = X, ridge
        self._index: IntArray | None = None  # of the columns gathered; None: the whole matrix
        self._middle: Middle | None = None
        self._ridge: Ridge | None = None
        self._iterations = ITERATIONS
        self.plans: list[dict[str, Any]] = []

    def solve(
        self, middle: Middle, u: FloatArray, T: FloatArray, start: FloatArray | None = None
    ) -> Solution:
        """(XᵀMX + diag u)⁻¹ XᵀT for u (d,), inf for what is left out, whose rows of W are zero."""
        on = np.flatnonzero(np.isfinite(u))
        ridge = self._at(on, middle)
        if self._index is None:
            solved = ridge.prepare(u).solve(T, start)
            self._note(solved, start)
            return solved
        solved = ridge.prepare(u[on]).solve(T, None if start is None else start[on])
        self._note(solved, start)
        W = np.zeros((len(u), T.shape[1]))
        W[on] = solved.W
        return Solution(W, solved.residuals, solved.iterations)

    def times(self, W: FloatArray) -> FloatArray:
        """X W for a W that is zero outside the working set."""
        return self.whole @ W if self._index is None else self.X @ W[self._index]

    def transposed_times(self, V: FloatArray) -> FloatArray:
        """XᵀV on the working set, d × r; zero on what was left out and not gathered."""
        if self._index is None:
            return self.X.T @ V
        G = np.zeros((self.whole.shape[1], V.shape[1]))
        G[self._index] = self.X.T @ V
        return G

    @property
    def X(self) -> Matrix:
        """The matrix that solves run on."""
        return self.whole if self._ridge is None else self._ridge.X

    def _at(self, on: IntArray, middle: Middle) -> Ridge:
        before, index = self._ridge, self._index
        same = before is not None and (
            not self._fits(on) if index is None else np.array_equal(on, index)
        )
        if before is not None and same and middle is self._middle:
            return before
        X = self.X if same else self._gather(on)
        ridge = Ridge(X, middle, iterations=self._iterations, **self._ridge_options)
        if before is not None and middle is self._middle:
            ridge.narrow(before, index, self._index)
        if not same:
            self.plans.append(
                {"features": len(on), "gathered": self._index is not None, "plan": ridge.plan}
            )
        self._ridge, self._middle = ridge, middle
        return ridge

    def _note(self, solved: Solution, start: FloatArray | None) -> None:
        """What the next plan may expect of CG: as many iterations as the last solve that began at
        an answer.
        """
        if (
            start is not None
            and start.any()
            and self._ridge is not None
            and self._ridge.plan.way == "cg"
        ):
            self._iterations = max(solved.iterations, 1)

    def _bytes(self, on: IntArray) -> int:
        """Of those columns in both layouts, in float64, or dense."""
        return min(24 * int(self.whole.stats.nnz[on].sum()), 8 * self.whole.shape[0] * len(on))

    def _fits(self, on: IntArray) -> bool:
        return self._bytes(on) <= SHARE * (
            self._ridge_options.get("limit") or engine.memory_limit()
        )

    def _gather(self, on: IntArray) -> Matrix:
        if not self._fits(on):
            self._index = None
            return self.whole
        if self._index is not None and np.isin(on, self._index, assume_unique=True).all():
            columns = self.X.columns(np.searchsorted(self._index, on))
        else:
            columns = self.whole.columns(on)
        self._index = on
        dense = columns.nnz > DENSE * columns.shape[0] * max(columns.shape[1], 1)
        return Matrix.from_array(
            columns.toarray().astype(np.float64) if dense else columns.astype(np.float64)
        )
