"""Linear support vector machines with the squared hinge loss, one class against the rest.

    P(w, b) = ½‖w‖² + ½b² + C Σ_i s_i ξ_i²,      ξ_i = max(0, 1 − y_i(w·x_i + b))

It is the objective of LIBLINEAR and of scikit-learn's LinearSVC: the intercept is penalized like a
weight. s are weights of the samples, 1 without any. With X̂ = [X, 1], the gradient is w − w' with
w' = 2C X̂ᵀ(y ⊙ s ⊙ ξ), and the dual variables 2C s ⊙ ξ have the dual objective D. Their gap is

    P − D = ½‖∇P‖²                                      [follows from ξ_i(1 − y_i f_i) = ξ_i²]

so the gradient is an exact certificate. P is strongly convex, so ‖w − w*‖² ≤ ‖∇P‖² too.

A step is one of the finite Newton method [Keerthi and DeCoste, JMLR 2005]: conjugate gradients on
the generalized Hessian I + 2C X̂ᵀ diag(s ⊙ (ξ > 0)) X̂, then an exact line search. X is read twice
per iteration of conjugate gradients and once per step. The line search and the loss need no pass,
because the decision values are kept. All classes share the passes. Conjugate gradients have no
preconditioner: the diagonal of the Hessian doubled their iterations on text and on images.

On request an iteration reads the rows once and not the columns: each tile of rows adds its part of
X̂ᵀ diag(s ⊙ (ξ > 0)) X̂P, which is d × r. The last bits then depend on the tiles of rows.

Few samples of many features go another way, by their kernel: `bigfs.linalg.kernel_svm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigfs import engine
from bigfs.linalg import kernel_svm
from bigfs.linalg.kernel_svm import KernelSVM
from bigfs.linalg.prox import column_dots
from bigfs.linalg.squared_hinge import Machines, line_search, weighted
from bigfs.matrix import Block, Matrix
from bigfs.result import Result
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

FORCING = 0.1  # share of the gradient that conjugate gradients leave of it
MAX_CG = 200  # iterations of conjugate gradients per step
VECTORS_OF_SAMPLES, VECTORS_OF_FEATURES = 12, 9  # per class, that a step holds at once


class SVMState(NamedTuple):
    """The machines after some steps."""

    W: FloatArray  # d × r
    b: FloatArray  # (r,)
    F: FloatArray  # n × r: the decision values XW + b
    gradient: FloatArray  # d + 1 × r: of P, that of b last
    objective: FloatArray  # (r,): P
    gap: FloatArray  # (r,): (P − D) / P


@dataclass
class SVMProblem(Machines):
    """Any number of samples, by conjugate gradients. `one_pass` says whether an iteration of
    conjugate gradients reads the rows only."""

    one_pass: bool = False

    def start(self, W: FloatArray, b: FloatArray) -> SVMState:
        """Return the state at the weights W (d × r) and intercepts b."""
        U = np.concatenate([W, b[None]])
        F = self.times(U) if U.any() else np.zeros(self.Y.shape)
        return self.state(U, F)

    def state(self, U: FloatArray, F: FloatArray) -> SVMState:
        """Return the state at U = [W; bᵀ] with the decision values F, certified by one pass."""
        slack: FloatArray = np.maximum(1 - self.Y * F, 0)
        loss = weighted(slack, self.s)
        gradient = U - 2 * self.C * self.transposed_times(self.Y * loss)
        objective = column_dots(U, U) / 2 + self.C * column_dots(slack, loss)
        gap = column_dots(gradient, gradient) / 2 / np.where(objective > 0, objective, 1)
        return SVMState(U[:-1], U[-1], F, gradient, objective, gap)

    def step(self, state: SVMState) -> SVMState:
        """Run one Newton step of every machine that is above the tolerance."""
        moving = np.flatnonzero(state.gap > self.tol)
        Y, F = self.Y[:, moving], state.F[:, moving]
        U = np.concatenate([state.W, state.b[None]])
        S, XS = self.newton_direction(state.gradient[:, moving], Y * F < 1)
        t = line_search(column_dots(U[:, moving], S), column_dots(S, S), F, XS, Y, self.C, self.s)
        U[:, moving] += t * S
        F = state.F.copy()
        F[:, moving] += t * XS
        return self.state(U, F)

    def newton_direction(
        self, gradient: FloatArray, violated: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return S and X̂S with (I + 2C X̂ᵀ diag(s ⊙ violated) X̂) S ≈ −gradient per machine."""
        S, XS = np.zeros(gradient.shape), np.zeros(violated.shape)
        R = -gradient  # residuals
        P = R.copy()  # search directions
        energy = column_dots(R, R)
        enough = FORCING**2 * energy
        for _ in range(MAX_CG):
            on = np.flatnonzero(energy > enough)
            if not len(on):
                break
            if self.one_pass:
                curvature = weighted(violated[:, on], self.s)
                HP = P[:, on] + 2 * self.C * self.gram_times(P[:, on], curvature)
            else:
                XP = self.times(P[:, on])
                curved = weighted(violated[:, on] * XP, self.s)
                HP = P[:, on] + 2 * self.C * self.transposed_times(curved)
            step = energy[on] / column_dots(P[:, on], HP)
            S[:, on] += step * P[:, on]
            if not self.one_pass:
                XS[:, on] += step * XP
            R[:, on] -= step * HP
            before, energy[on] = energy[on], column_dots(R[:, on], R[:, on])
            P[:, on] = R[:, on] + energy[on] / before * P[:, on]
        return S, self.times(S) if self.one_pass else XS

    def gram_times(self, U: FloatArray, curvature: AnyArray) -> FloatArray:
        """Return X̂ᵀ diag(curvature) X̂U (d + 1 × r), in one pass over the rows."""
        product: FloatArray = self.X.sum(_gram_times, 0, U, split=[curvature])
        if self.features is not None:
            product[:-1][~self.features] = 0
        return product

    def times(self, U: FloatArray) -> FloatArray:
        """Return X̂U (n × r)."""
        XU: FloatArray = self.X @ U[:-1] + U[-1]
        return XU

    def transposed_times(self, V: FloatArray) -> FloatArray:
        """Return X̂ᵀV (d + 1 × r), zero at the features that may have no weight."""
        XtV = self.X.T @ V
        if self.features is not None:
            XtV[~self.features] = 0
        return np.concatenate([XtV, V.sum(axis=0)[None]])


def fit_svm(
    X: Matrix,
    codes: IntArray,
    n_classes: int,
    *,
    C: float,
    tol: float,
    max_iter: int,
    name: str,
    start: tuple[FloatArray, FloatArray] | None = None,
    features: BoolArray | None = None,
    one_pass: bool = False,
    sample_weight: FloatArray | None = None,
) -> Result[SVMState]:
    """Train a machine per class against the rest, or one for two classes."""
    n, d = X.shape
    positive = np.arange(1, 2) if n_classes == 2 else np.arange(n_classes)
    r = len(positive)
    engine.require_memory(
        8 * r * (VECTORS_OF_SAMPLES * n + VECTORS_OF_FEATURES * d),
        f"training {r} linear SVMs on {n} samples and {d} features",
    )
    Y = np.where(codes[:, None] == positive, 1, -1).astype(np.int8)
    settings = (X, Y, C, tol, features, sample_weight)
    W, b = (np.zeros((d, r)), np.zeros(r)) if start is None else start
    with engine.one_blas_thread():
        if kernel_svm.is_faster(X, r, features):
            F = np.zeros(Y.shape) if start is None else X @ W + b
            return _fit_by_kernel(KernelSVM(*settings), F, max_iter, name)
        problem = SVMProblem(*settings, one_pass=one_pass)
        return problem.train(problem.start(W, b), max_iter, name)


def _gram_times(
    block: Block, start: int, stop: int, curvature: AnyArray, U: FloatArray
) -> FloatArray:
    """Return the part of `SVMProblem.gram_times` of some rows."""
    V = curvature * (np.asarray(block @ U[:-1]) + U[-1])
    return np.concatenate([np.asarray(block.T @ V), V.sum(axis=0)[None]])


def _fit_by_kernel(problem: KernelSVM, F: FloatArray, max_iter: int, name: str) -> Result[SVMState]:
    """Train from the decision values F, and return what the steps of `SVMProblem` would."""
    result = problem.train(problem.start(F), max_iter, name)
    state = result.value
    U, gradient = np.split(problem.weights(np.hstack([state.B, state.delta])), 2, axis=1)
    machines = SVMState(U[:-1], U[-1], state.F, gradient, state.objective, state.gap)
    return Result(machines, result.status, result.history, result.stats)
