"""The working set of active features.

Once its columns fit in memory they are gathered, and later solves no longer read the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.linalg.active_columns import ActiveColumns
from bigfs.linalg.ridge import Prepared, Ridge, SampleOperator, Solution
from bigfs.linalg.ridge.plan import CG_BYTES, ITERATIONS
from bigfs.matrix import Matrix
from bigfs.matrix.panels import ColumnStrips
from bigfs.types import FloatArray, IntArray


class WorkingSet:
    """Solve ridge systems over the active features, those with finite u. Their columns are gathered
    in memory if they fit. Each set of features has a plan of its own."""

    def __init__(self, X: Matrix, room: float = np.inf, **ridge: Any) -> None:
        feature_bytes = CG_BYTES * ridge.get("targets", 1)
        self._columns = ActiveColumns(X, ridge.get("limit"), room, feature_bytes)
        self._ridge_options = ridge
        self._M: SampleOperator | None = None
        self._ridge: Ridge | None = None
        self._iterations = ITERATIONS
        self.plans: list[dict[str, Any]] = []

    def solve(
        self, M: SampleOperator, u: FloatArray, T: FloatArray, start: FloatArray | None = None
    ) -> Solution:
        """Return W = (XᵀMX + diag u)⁻¹ XᵀT for u of shape (d,). A weight inf drops its feature, and
        its row of W is zero."""
        return self._solve(M, u, start, lambda prepared, rows, Z: prepared.solve(T, Z))

    def solve_rhs(
        self,
        M: SampleOperator,
        u: FloatArray,
        rhs: FloatArray | Callable[[Any], FloatArray],
        start: FloatArray | None = None,
        start_product: FloatArray | None = None,
    ) -> Solution:
        """Return (XᵀMX + diag u)⁻¹ rhs for u of shape (d,) and rhs of shape (d, r)."""

        def solve(prepared: Prepared, rows: Any, Z: FloatArray | None) -> Solution:
            known = None if start_product is None else start_product[rows]
            is_copy = not isinstance(rows, slice)  # of the start and of its product

            def own_rhs() -> FloatArray:
                return rhs(rows) if callable(rhs) else rhs[rows]

            return prepared.solve_rhs(own_rhs, Z, known, is_copy)

        return self._solve(M, u, start, solve)

    def _solve(
        self,
        M: SampleOperator,
        u: FloatArray,
        start: FloatArray | None,
        solve: Callable[[Prepared, Any, FloatArray | None], Solution],
    ) -> Solution:
        """Call `solve(prepared, rows, start)` over the active rows, and fill in the others."""
        active = np.flatnonzero(np.isfinite(u))
        ridge = self._ridge_on(active, M)
        if self._columns.index is None:
            solution = solve(ridge.prepare(u), slice(None), start)
            self._record_iterations(solution, start)
            return solution
        first = None if start is None else start[active]
        solution = solve(ridge.prepare(u[active]), active, first)
        self._record_iterations(solution, start)
        shape = len(u), solution.W.shape[1]
        W, product = engine.lazy_zeros(shape), engine.lazy_zeros(shape)
        W[active], product[active] = solution.W, solution.product
        return solution._replace(W=W, product=product)

    def times(self, W: FloatArray) -> FloatArray:
        """Return X W for a W that is zero outside the working set."""
        return self._columns.times(W)

    def times_by_strips(self, W: FloatArray, width: int) -> ColumnStrips:
        """Return X W as `times` does, by strips of `width` columns."""
        return self._columns.times_by_strips(W, width)

    def transposed_times(self, V: FloatArray | ColumnStrips) -> FloatArray:
        """Return XᵀV (d × r). Rows of features outside the working set may be zero."""
        return self._columns.transposed_times(V)

    @property
    def index(self) -> IntArray | None:
        """The numbers of the columns of `X` (n_active,), or None if it is the full matrix."""
        return self._columns.index

    @property
    def X(self) -> Matrix:
        """The matrix of the last solve: the active columns, or the full matrix."""
        return self._columns.X

    def _ridge_on(self, active: IntArray, M: SampleOperator) -> Ridge:
        """Return the last ridge if it serves these features and M, else a new one."""
        columns, last, last_index = self._columns, self._ridge, self._columns.index
        same = last is not None and (
            columns.stays_full(active) if last_index is None else np.array_equal(active, last_index)
        )
        if last is not None and same and M is self._M:
            return last
        products = (None, None) if last is None else last.products(M)
        if not same:
            last = self._ridge = None  # it would keep the columns of the last set
            columns.select(active)
        ridge = Ridge(columns.X, M, iterations=self._iterations, **self._ridge_options)
        ridge.take_over(products, last_index, columns.index)
        if not same:
            self.plans.append(
                {"features": len(active), "gathered": columns.gathered, "plan": ridge.plan}
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
