"""The weighted ridge solve W = (XᵀMX + diag u)⁻¹ XᵀT, in three ways that check one another.

    ridge = Ridge(X, centring(n), targets=r)     # picks the way: ridge.plan says which, and why
    solved = ridge.prepare(u).solve(T)           # factor once, solve many: solved.W,
        solved.residual

`woodbury` factors an n × n matrix, `primal` a d × d one, `cg` needs products only. All three work
in the scaled variable u^½ W, report the residual, and take u = inf for a feature that is switched
off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.ridge.cg import CG, Solution, block_cg
from bigfs.linalg.ridge.operator import Middle, centring, diagonal, identity, laplacian
from bigfs.linalg.ridge.plan import ITERATIONS, WAYS, Cost, Plan, choose, project
from bigfs.linalg.ridge.primal import Primal, gram
from bigfs.linalg.ridge.woodbury import Woodbury, kernel
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray


class Ridge:
    """One X and one M, for any number of weights u.

    Parameters
    ----------
    X : n × d `Matrix`.
    middle : M, from `identity`, `centring`, `diagonal` or `laplacian`; default the identity.
    solver : "woodbury", "primal", "cg", or "auto": the quickest that fits in memory, by
        `plan.project`.
    targets : r, the number of right-hand sides to expect.
    tol : relative residual at which CG stops. The direct ways reach rounding.
    max_iter : CG's iterations in one solve. Stopping there is not an error: `Solution.residuals`
        tells.
    limit : bytes that one process may use; default `engine.memory_limit()`.
    iterations : of CG that the plan expects; a loop that starts each solve at the last answer knows
        better than the default.

    Attributes
    ----------
    plan : the way chosen, its projected seconds and bytes, the other ways', and why.

    Raises
    ------
    NotEnoughMemory : before any work, when the way asked for, or every way, is projected past
        `limit`.
    """

    def __init__(
        self,
        X: Matrix,
        middle: Middle | None = None,
        *,
        solver: str = "auto",
        targets: int = 1,
        tol: float = 1e-10,
        max_iter: int = 500,
        limit: int | None = None,
        iterations: int = ITERATIONS,
    ) -> None:
        self.X, self.middle = X, middle or identity()
        self.tol, self.max_iter = tol, max_iter
        F = self.middle.F
        tiles = 0 if X.local else max(len(X.row_tiles), len(X.column_tiles))
        entries = 0 if F is None else F.nnz if sp.issparse(F) else F.size
        root = F is not None and not self.middle.projection
        costs = project(
            *X.shape, X.stats.nnz, targets, tiles, engine.n_workers(), entries, root, iterations
        )
        self.plan = choose(costs, solver, limit)
        self._gram: FloatArray | None = None
        self._squares: FloatArray | None = None

    def prepare(self, u: FloatArray) -> Prepared:
        """Factorize for the weights u (d,), each positive; inf switches a feature off."""
        u = np.asarray(u, dtype=np.float64)
        if u.shape != (self.X.shape[1],) or not np.all(u > 0):
            raise ValueError(
                f"u must hold {self.X.shape[1]} positive weights (inf drops "
                f"a feature); got shape {u.shape}"
            )
        cg = CG(self.X, self.middle, self.squares, u, tol=self.tol, max_iter=self.max_iter)
        if self.plan.way == "primal":
            return Prepared(cg, Primal(self.gram, u))
        return Prepared(
            cg, Woodbury(self.X, self.middle, u) if self.plan.way == "woodbury" else None
        )

    def narrow(self, wider: Ridge, index: Any, narrower: Any) -> None:
        """Take the Gram matrix from a ridge over the columns `index`, if it has one and they
        include `narrower`.
        """
        if (
            wider._gram is not None
            and index is not None
            and narrower is not None
            and np.isin(narrower, index).all()
        ):
            at = np.searchsorted(index, narrower)
            self._gram = wider._gram[np.ix_(at, at)]

    @property
    def gram(self) -> FloatArray:
        """XᵀMX, d × d; built once."""
        if self._gram is None:
            self._gram = gram(self.X, self.middle)
        return self._gram

    @property
    def squares(self) -> FloatArray:
        """The diagonal of Xᵀdiag(m)X, less that of centring: what CG's preconditioner needs;
        computed once.
        """
        if self._squares is None:
            if self.middle.m is None:
                self._squares = self.X.stats.sums_of_squares
            else:
                self._squares = weighted_squares(self.X, self.middle.m)
            if self.middle.projection:
                self._squares = np.maximum(self._squares - self.X.shape[0] * self.X.means**2, 0)
        return self._squares


class Prepared:
    """A factorization for one u, ready for any number of right-hand sides."""

    def __init__(self, cg: CG, direct: Woodbury | Primal | None) -> None:
        self.cg, self.direct = cg, direct

    def solve(self, T: FloatArray, start: FloatArray | None = None) -> Solution:
        """(XᵀMX + diag u)⁻¹ XᵀT for T (n × r).

        `start` (d × r) is where CG begins; a direct way needs none, takes one step of refinement
        instead, and reports the residual from before it.
        """
        rhs = self.cg.X.T @ T
        if self.direct is None:
            return self.cg.solve(rhs, start)
        s = self.cg.s
        W = self.direct.solve(rhs)
        left = s * rhs - self.cg.operator(np.divide(W, s, out=np.zeros_like(W), where=s > 0))
        size = np.linalg.norm(s * rhs, axis=0)
        W += self.direct.solve(np.divide(left, s, out=np.zeros_like(W), where=s > 0))
        return Solution(W, np.linalg.norm(left, axis=0) / np.where(size > 0, size, 1), 1)


def weighted_squares(X: Matrix, m: FloatArray) -> FloatArray:
    """Σ_i m_i x_ij² for each column j. One pass."""
    if X.row_tiles:
        return np.asarray(
            X.reduce_rows(_squares, each=[[m[t.start : t.stop] for t in X.row_tiles]])
        )
    return np.concatenate(X.map_columns(_squares, m))


def _squares(block: Block, start: int, stop: int, m: FloatArray) -> FloatArray:
    squared: Any = (
        block.astype(np.float64).power(2)
        if sp.issparse(block)
        else np.asarray(block, dtype=np.float64) ** 2
    )
    return np.asarray(squared.T @ m)


__all__ = [
    "WAYS",
    "Cost",
    "Middle",
    "Plan",
    "Prepared",
    "Ridge",
    "Solution",
    "block_cg",
    "centring",
    "choose",
    "diagonal",
    "gram",
    "identity",
    "kernel",
    "laplacian",
    "project",
]
