"""The weighted ridge solve W = (XᵀMX + diag u)⁻¹ XᵀT, by three solvers that check one another.

    ridge = Ridge(X, centering(n), targets=r)    # ridge.plan names the solver and the reason
    solution = ridge.prepare(u).solve(T)         # factors once per u, solves for many T
    solution.W, solution.residual

`woodbury` factors an n × n matrix, `primal` a d × d one, and `cg` needs products only. All three
solve for the scaled variable u^½ W and report the residual. A weight u = inf drops its feature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs.linalg.ridge.cg import CG, Solution
from bigfs.linalg.ridge.direct import Primal, Woodbury, gram
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.linalg.ridge.plan import ITERATIONS, choose_solver, has_layout, project_costs
from bigfs.matrix import Block, Matrix
from bigfs.matrix.kernels import strips
from bigfs.matrix.panels import strip_width
from bigfs.result import Status
from bigfs.types import FloatArray, IntArray

EXACT_RESIDUAL = 1e-8  # relative, below which a direct solve is exact


class Ridge:
    """Solve ridge systems with one X and one M, for any number of weights u."""

    def __init__(
        self,
        X: Matrix,
        M: SampleOperator | None = None,
        *,
        solver: str = "auto",
        targets: int = 1,
        tol: float = 1e-10,
        max_iter: int = 500,
        iterations: int = ITERATIONS,
        reduction: float = 0.0,
    ) -> None:
        self.X, self.M = X, M or SampleOperator()
        self.tol, self.max_iter, self.reduction = tol, max_iter, reduction
        width = strip_width(self.M.height(X.shape[0]), targets)
        # columns of W whose XW (n × width) is formed at a time. None is all
        self.width = width if self.M.m is not None and width < targets else None
        costs = project_costs(
            *X.shape,
            X.stats.nnz,
            targets,
            self.M.entries,
            root=not self.M.has_root,
            iterations=iterations,
            width=0 if self.M.m is None and X.row_tiles else self.width,
            local=X.local,
        )
        if solver == "auto":
            costs = {name: cost for name, cost in costs.items() if has_layout(X, name)}
        self.plan = choose_solver(costs, solver)
        self._gram: FloatArray | None = None
        self._squares: FloatArray | None = None

    def prepare(self, u: FloatArray) -> Prepared:
        """Factorize for positive weights u of shape (d,). A weight inf drops its feature."""
        u = np.asarray(u, dtype=np.float64)
        if u.shape != (self.X.shape[1],) or not np.all(u > 0):
            raise ValueError(
                f"u must hold {self.X.shape[1]} positive weights (inf drops "
                f"a feature); got shape {u.shape}"
            )
        cg = CG(self, u)
        if self.plan.solver == "primal":
            return Prepared(cg, Primal(self.gram, u))
        return Prepared(cg, Woodbury(self.X, self.M, u) if self.plan.solver == "woodbury" else None)

    def products(self, M: SampleOperator) -> tuple[FloatArray | None, FloatArray | None]:
        """Return XᵀMX and `squares` for another ridge with M, as far as they were computed."""
        one, other = M.m, self.M.m
        same = one is other if one is None or other is None else np.array_equal(one, other)
        same = same and M.projection == self.M.projection
        return self._gram if M is self.M else None, self._squares if same else None

    def take_over(
        self,
        products: tuple[FloatArray | None, FloatArray | None],
        known_index: IntArray | None,
        index: IntArray | None,
    ) -> None:
        """Take the products of a ridge over the columns `known_index`, if they cover `index`.

        None stands for all columns.
        """
        gram, squares = products
        if known_index is None:
            if squares is not None:
                self._squares = squares if index is None else squares[index]
        elif index is not None and np.isin(index, known_index).all():
            positions = np.searchsorted(known_index, index)
            self._gram = None if gram is None else gram[np.ix_(positions, positions)]
            self._squares = None if squares is None else squares[positions]

    @property
    def gram(self) -> FloatArray:
        """XᵀMX, d × d. Computed once."""
        if self._gram is None:
            self._gram = gram(self.X, self.M)
        return self._gram

    @property
    def squares(self) -> FloatArray:
        """The diagonal of Xᵀdiag(m)X, less that of the centering, for CG's preconditioner."""
        if self._squares is None:
            if self.M.m is None:
                self._squares = self.X.stats.sums_of_squares
            else:
                self._squares = weighted_squares(self.X, self.M.m)
            if self.M.projection:
                self._squares = np.maximum(self._squares - self.X.shape[0] * self.X.means**2, 0)
        return self._squares


class Prepared:
    """The factorization for one u. Solves for any number of right-hand sides."""

    def __init__(self, cg: CG, direct: Woodbury | Primal | None) -> None:
        self.cg, self.direct = cg, direct

    def solve(self, T: FloatArray, start: FloatArray | None = None) -> Solution:
        """Return W = (XᵀMX + diag u)⁻¹ XᵀT for T of shape (n, r)."""
        return self.solve_rhs(self.cg.X.T @ T, start)

    def solve_rhs(
        self,
        rhs: FloatArray | Callable[[], FloatArray],
        start: FloatArray | None = None,
        start_product: FloatArray | None = None,
        overwrite: bool = False,
    ) -> Solution:
        """Return (XᵀMX + diag u)⁻¹ rhs for a rhs of shape (d, r), as `solve` does for XᵀT."""
        if self.direct is None:
            return self.cg.solve(rhs, start, start_product, overwrite)
        rhs = rhs() if callable(rhs) else rhs
        s = self.cg.s
        W = self.direct.solve(rhs)
        R = s * (rhs - self.gram_times(W)) - np.divide(W, s, out=np.zeros_like(W), where=s > 0)
        size = np.linalg.norm(s * rhs, axis=0)
        W += self.direct.solve(np.divide(R, s, out=np.zeros_like(W), where=s > 0))
        if isinstance(self.direct, Primal):
            product = self.direct.gram_times(W)
            R = s * (rhs - product) - np.divide(W, s, out=np.zeros_like(W), where=s > 0)
        else:
            product = rhs - np.divide(W, s**2, out=rhs.copy(), where=s > 0)
        residuals = np.linalg.norm(R, axis=0) / np.where(size > 0, size, 1)
        if isinstance(self.direct, Primal) and self.cg.X.local:
            residuals = np.maximum(residuals, self._gram_error(W, product, size))
        return Solution(W, residuals, 1, product, _status(residuals, self.cg.ridge.tol))

    def _gram_error(self, W: FloatArray, product: FloatArray, size: FloatArray) -> float:
        """Return the relative difference of the products of one random combination of the columns
        with the Gram matrix and with the matrix, as Freivalds (1979) compares them."""
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (W.shape[1], 1))
        error = self.cg.s * (self.cg.gram_times(W @ signs) - product @ signs)
        return float(np.linalg.norm(error) / max(np.linalg.norm(size), np.finfo(float).tiny))

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XᵀMX W, from the Gram matrix if there is one."""
        if isinstance(self.direct, Primal):
            return self.direct.gram_times(W)
        return self.cg.gram_times(W)


def _status(residuals: FloatArray, tol: float) -> Status:
    """Return the status of a direct solve, which is exact only where its residual says so."""
    largest = residuals.max(initial=0.0)
    if not np.isfinite(largest):
        return Status.NOT_FINITE
    if largest < EXACT_RESIDUAL:
        return Status.EXACT
    return Status.CONVERGED if largest <= tol else Status.STALLED


def weighted_squares(X: Matrix, m: FloatArray) -> FloatArray:
    """Return Σ_i m_i x_ij² for each column j. Reads X once."""
    if X.row_tiles:
        return np.asarray(X.sum(_squares, 0, split=[m]))
    return np.concatenate(X.map(_squares, 1, m))


def _squares(block: Block, start: int, stop: int, m: FloatArray) -> FloatArray:
    total = np.zeros(block.shape[1])
    for rows, Z in strips(block):  # a strip's squares take little memory
        squared: Any = Z.astype(np.float64)
        squared **= 2
        total += squared.T @ m[rows]
    return total
