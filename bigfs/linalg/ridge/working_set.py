"""The working set of active features.

Once its columns fit in memory they are gathered, and later solves no longer read the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs.linalg.active_columns import ActiveColumns
from bigfs.linalg.ridge import Prepared, Ridge
from bigfs.linalg.ridge.cg import Solution
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.linalg.ridge.plan import CG_BYTES, ITERATIONS, kernel_bytes, planned_bytes
from bigfs.matrix import Matrix
from bigfs.result import Status
from bigfs.types import FloatArray, IntArray


class WorkingSet(ActiveColumns):
    """Solve ridge systems over the active features, those of finite u, with a plan for each set."""

    def __init__(self, X: Matrix, room: float = np.inf, **ridge: Any) -> None:
        super().__init__(X, room, CG_BYTES * ridge.get("targets", 1))
        self._ridge_options = ridge
        self._M: SampleOperator | None = None
        self._ridge: Ridge | None = None
        self._iterations, self._has_solved = ITERATIONS, False
        self._needs_root = False  # of M, whose root is not in closed form
        self.plans: list[dict[str, Any]] = []
        self.status = Status.EXACT  # of the last solve

    def has_room(self, size: int, n_active: int) -> bool:
        """Return whether columns are gathered: if they fit in their share, or if they
        fit together with the kernel of Woodbury, which X by rows alone cannot make."""
        X, n, options = self.full, self.full.shape[0], self._ridge_options
        helps = not (X.local or X.column_tiles) and n <= n_active
        if helps and options.get("solver", "auto") in ("auto", "woodbury"):
            needed = size + max(size, kernel_bytes(n, self._needs_root))  # or two sets of columns
            if needed <= planned_bytes():
                return True
        return super().has_room(size, n_active)

    def solve(
        self, M: SampleOperator, u: FloatArray, T: FloatArray, start: FloatArray | None = None
    ) -> Solution:
        """Return W = (XᵀMX + diag u)⁻¹ XᵀT for u of shape (d,).

        A weight inf drops its feature, and its row of W is zero.
        """
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
        rows = slice(None) if self.index is None else active
        solution = solve(ridge.prepare(u[rows]), rows, None if start is None else start[rows])
        if self._has_solved and ridge.plan.solver == "cg":  # the first solve knows no solution
            self._iterations = max(solution.iterations, 1)  # what the next plan expects
        self._has_solved, self.status = True, solution.status
        W, product = self.all_rows(solution.W), self.all_rows(solution.product)
        return solution._replace(W=W, product=product)

    def _ridge_on(self, active: IntArray, M: SampleOperator) -> Ridge:
        """Return the last ridge if it serves these features and M, else a new one."""
        last, last_index = self._ridge, self.index
        same = last is not None and (
            self.stays_full(active) if last_index is None else np.array_equal(active, last_index)
        )
        if last is not None and same and M is self._M:
            return last
        products = (None, None) if last is None else last.products(M)
        if not same:
            last = self._ridge = None  # it would keep the columns of the last set
            self._needs_root = not M.has_root
            self.select(active)
        ridge = Ridge(self.X, M, iterations=self._iterations, **self._ridge_options)
        ridge.take_over(products, last_index, self.index)
        if not same:
            plan = {"features": len(active), "gathered": self.gathered, "plan": ridge.plan}
            self.plans.append(plan)
        self._ridge, self._M = ridge, M
        return ridge
