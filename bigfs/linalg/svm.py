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

Few samples of many features have their kernel K = X̂X̂ᵀ in memory. The weights are U = X̂ᵀB for B
(n × r), and the decision values are F = KB. With S the samples of positive loss, a step goes to

    B_S = (K_SS + diag(1 / 2Cs_S))⁻¹ y_S,    B = 0 outside of S      [Chapelle, 2007]

and the line search ends it short of there where the objective would rise. The gradient is X̂ᵀδ with
δ = B − 2C y ⊙ s ⊙ ξ, so that the duality gap ½‖∇P‖² = ½ δᵀKδ needs no pass over X.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la

from bigfs import engine
from bigfs.linalg.active_columns import ActiveColumns
from bigfs.linalg.conjugate_gradients import column_cg
from bigfs.linalg.prox import column_dots
from bigfs.linalg.sample_kernel import kernel
from bigfs.matrix import Block, Matrix
from bigfs.result import Record, Result, iterate
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray
from bigfs.validation import explain_singular

FORCING = 0.1  # share of the gradient that conjugate gradients leave of it
MAX_CG = 200  # iterations of conjugate gradients per step
VECTORS_OF_SAMPLES, VECTORS_OF_FEATURES = 12, 9  # per class, that a step holds at once
MOST_WORK = Setting(10**10)  # r n³ of a step by the kernel, with which it is still the faster one
MATRICES = 4  # n × n matrices at a time
LINE_SEARCH_STEPS = 60  # halvings in double precision; Newton's steps in between end it earlier


@dataclass
class Classifiers:
    """r classifiers on the same samples, trained by Newton steps."""

    X: Matrix  # (n, d): the samples
    Y: AnyArray  # (n, r): 1 for the samples of a classifier's class and −1 for the others
    C: float  # weight of the losses
    tol: float  # relative duality gap below which a classifier rests
    features: BoolArray | None = None  # (d,): mask of the features that may have a weight
    sample_weight: FloatArray | None = None  # (n,): weights s of the samples

    @property
    def s(self) -> FloatArray | None:
        """The weights as a column (n × 1)."""
        return None if self.sample_weight is None else self.sample_weight[:, None]

    def losses(self, F: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s ⊙ ξ (n × r) at the decision values F, and the part C Σ s ξ² (r,) of P."""
        slack: FloatArray = np.maximum(1 - self.Y * F, 0)
        loss = weigh(slack, self.s)
        return loss, self.C * column_dots(slack, loss)

    def transposed_times(self, V: FloatArray) -> FloatArray:
        """Return X̂ᵀV (d + 1 × r), zero at the features that may have no weight."""
        XtV: FloatArray = self.X.T @ V
        if self.features is not None:
            XtV[~self.features] = 0
        return np.concatenate([XtV, V.sum(axis=0)[None]])


def measure(state: Any) -> Record:
    return {"objective": float(state.objective.sum()), "gap": float(state.gap.max())}


def line_search(
    a: FloatArray,
    b: FloatArray,
    F: FloatArray,
    XS: FloatArray,
    Y: AnyArray,
    C: float,
    s: FloatArray | None = None,
) -> FloatArray:
    """Return the t (r,) of least P(U + tS) for each classifier."""
    low, high, t = np.zeros(len(a)), np.full(len(a), np.inf), np.ones(len(a))
    for _ in range(LINE_SEARCH_STEPS):
        slack: FloatArray = np.maximum(1 - Y * (F + t * XS), 0)
        slope = a + t * b - 2 * C * column_dots(Y * weigh(slack, s), XS)
        curvature = b + 2 * C * column_dots(XS, weigh(XS * (slack > 0), s))
        low, high = np.where(slope <= 0, t, low), np.where(slope > 0, t, high)
        following = t - np.divide(slope, curvature, out=np.zeros(len(a)), where=curvature > 0)
        inside = (following > low) & (following < high)
        middle = np.where(np.isfinite(high), (low + high) / 2, 2 * t)
        following = np.where(inside | (slope == 0), following, middle)
        if np.all(np.abs(following - t) <= 1e-12 * t):
            break
        t = following
    return t


def weigh(V: AnyArray, s: FloatArray | None) -> AnyArray:
    """Return s ⊙ V for the weights s (n × 1) of the samples."""
    return V if s is None else s * V


# --- by conjugate gradients ----------------------------------------------------------------------


class SVMState(NamedTuple):
    """The classifiers after some steps."""

    W: FloatArray  # d × r
    b: FloatArray  # (r,)
    F: FloatArray  # n × r: the decision values XW + b
    gradient: FloatArray  # d + 1 × r: of P, that of b last
    objective: FloatArray  # (r,): P
    gap: FloatArray  # (r,): (P − D) / P


@dataclass
class SVMProblem(Classifiers):
    """Any number of samples, by conjugate gradients, which read the rows only if `one_pass`."""

    one_pass: bool = False

    def start(self, W: FloatArray, b: FloatArray) -> SVMState:
        """Return the state at the weights W (d × r) and intercepts b."""
        U = np.concatenate([W, b[None]])
        F = self.times(U) if U.any() else np.zeros(self.Y.shape)
        return self.state(U, F)

    def state(self, U: FloatArray, F: FloatArray) -> SVMState:
        """Return the state at U = [W; bᵀ] with the decision values F, certified by one pass."""
        loss, penalty = self.losses(F)
        gradient = U - 2 * self.C * self.transposed_times(self.Y * loss)
        objective = column_dots(U, U) / 2 + penalty
        gap = column_dots(gradient, gradient) / 2 / np.where(objective > 0, objective, 1)
        return SVMState(U[:-1], U[-1], F, gradient, objective, gap)

    def step(self, state: SVMState) -> SVMState:
        """Run one Newton step of every classifier that is above the tolerance."""
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
        """Return S and X̂S with (I + 2C X̂ᵀ diag(s ⊙ violated) X̂) S ≈ −gradient per classifier."""
        S, XS = np.zeros(gradient.shape), np.zeros(violated.shape)
        XP = XS  # of the search directions

        def hessian_times(P: FloatArray, on: IntArray) -> FloatArray:
            nonlocal XP
            if self.one_pass:
                return P + 2 * self.C * self.gram_times(P, weigh(violated[:, on], self.s))
            XP = self.times(P)
            curved = weigh(violated[:, on] * XP, self.s)
            return P + 2 * self.C * self.transposed_times(curved)

        def advance(step: FloatArray, P: FloatArray, on: IntArray) -> None:
            S[:, on] += step * P
            if not self.one_pass:
                XS[:, on] += step * XP

        enough = FORCING**2 * column_dots(gradient, gradient)
        column_cg(hessian_times, lambda R, on: R, advance, -gradient, enough, MAX_CG)
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


def _gram_times(
    block: Block, start: int, stop: int, curvature: AnyArray, U: FloatArray
) -> FloatArray:
    """Return the part of `SVMProblem.gram_times` of some rows."""
    V = curvature * (np.asarray(block @ U[:-1]) + U[-1])
    return np.concatenate([np.asarray(block.T @ V), V.sum(axis=0)[None]])


# --- by the kernel -------------------------------------------------------------------------------


class KernelState(NamedTuple):
    """The classifiers after some steps."""

    B: FloatArray  # n × r
    F: FloatArray  # n × r: the decision values KB
    delta: FloatArray  # n × r: the gradient of P is X̂ᵀ delta
    objective: FloatArray  # (r,): P
    gap: FloatArray  # (r,): (P − D) / P


class KernelSVM(Classifiers):
    """Few samples, by their kernel."""

    @cached_property
    def K(self) -> FloatArray:
        """X̂X̂ᵀ (n × n) of the features that may have a weight."""
        mask = np.ones(self.X.shape[1]) if self.features is None else self.features
        return kernel(self.X, mask.astype(np.float64)) + 1

    def start(self, F: FloatArray) -> KernelState:
        """Return the classifiers of the samples that have a loss at the decision values F."""
        B = np.column_stack([self.solution(k, F[:, k]) for k in range(F.shape[1])])
        return self.state(B, self.K @ B)

    def state(self, B: FloatArray, F: FloatArray) -> KernelState:
        """Return the state at B with the decision values F."""
        loss, penalty = self.losses(F)
        objective = column_dots(B, F) / 2 + penalty
        delta = B - 2 * self.C * self.Y * loss
        gap = column_dots(delta, self.K @ delta) / 2 / np.where(objective > 0, objective, 1)
        return KernelState(B, F, delta, objective, np.maximum(gap, 0))

    def step(self, state: KernelState) -> KernelState:
        """Run one Newton step of every classifier that is above the tolerance."""
        moving = np.flatnonzero(state.gap > self.tol)
        if not len(moving):
            return state
        B, F, Y = state.B.copy(), state.F.copy(), self.Y[:, moving]
        newton = np.column_stack([self.solution(int(k), F[:, k]) for k in moving])
        S = newton - B[:, moving]
        KS = self.K @ S
        a, b = column_dots(B[:, moving], KS), column_dots(S, KS)
        t = line_search(a, b, F[:, moving], KS, Y, self.C, self.s)
        B[:, moving] += t * S
        F[:, moving] += t * KS
        return self.state(B, F)

    def solution(self, k: int, f: FloatArray) -> FloatArray:
        """Return the B (n,) of classifier k whose samples of positive loss are those at f."""
        y = self.Y[:, k]
        ridge = np.full(len(y), 1 / (2 * self.C))
        has_loss = y * f < 1
        if self.s is not None:
            has_loss &= self.s[:, 0] > 0
            np.divide(ridge, self.s[:, 0], out=ridge, where=has_loss)
        S = np.flatnonzero(has_loss)
        A = self.K[np.ix_(S, S)]
        A.flat[:: len(S) + 1] += ridge[S]
        B = np.zeros(len(y))
        if len(S):
            with explain_singular("the linear SVM"):
                B[S] = la.cho_solve(la.cho_factor(A, overwrite_a=True), y[S].astype(np.float64))
        return B

    def classifiers(self, state: KernelState) -> SVMState:
        """Return what the steps of `SVMProblem` would. Reads X once."""
        both = self.transposed_times(np.hstack([state.B, state.delta]))
        U, gradient = np.split(both, 2, axis=1)
        return SVMState(U[:-1], U[-1], state.F, gradient, state.objective, state.gap)


# --- either way ----------------------------------------------------------------------------------


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
    positive: IntArray | None = None,
) -> Result[SVMState]:
    """Train a classifier per class against the rest, one for two, or one for each of `positive`."""
    n, d = X.shape
    positive = positive_classes(n_classes) if positive is None else positive
    r = len(positive)
    engine.require_memory(
        8 * r * (VECTORS_OF_SAMPLES * n + VECTORS_OF_FEATURES * d),
        f"training {r} linear SVMs on {n} samples and {d} features",
    )
    Y = np.where(codes[:, None] == positive, 1, -1).astype(np.int8)
    settings = (X, Y, C, tol, features, sample_weight)
    W, b = (np.zeros((d, r)), np.zeros(r)) if start is None else start
    stop: dict[str, Any] = {"stop": "gap", "tol": tol, "max_iter": max_iter, "name": name}
    with engine.one_blas_thread():
        few = _few_samples(X, r, features)
        if few is None:
            problem = SVMProblem(*settings, one_pass=one_pass)
            return iterate(problem.step, problem.start(W, b), measure=measure, **stop)
        by_kernel = KernelSVM(few, *settings[1:])
        begin = by_kernel.start(np.zeros(Y.shape) if start is None else few @ W + b)
        result = iterate(by_kernel.step, begin, measure=measure, **stop)
        classifiers = by_kernel.classifiers(result.value)
        return Result(classifiers, result.status, result.history, result.stats)


def positive_classes(n_classes: int) -> IntArray:
    """Return the classes that have a classifier each: all, or the second of two."""
    return np.arange(1, 2) if n_classes == 2 else np.arange(n_classes)


def _few_samples(X: Matrix, r: int, features: BoolArray | None) -> Matrix | None:
    """Return X, gathered if it has rows alone, if the kernel is the way to r classifiers on it."""
    n, d = X.shape[0], X.shape[1] if features is None else int(features.sum())
    fits = MATRICES * 8 * n**2 <= engine.SHARES.value.svm_kernel * engine.planned_memory()
    if n > d or r * n**3 > MOST_WORK.value or not fits:
        return None
    if X.local or X.column_tiles:
        return X
    columns = ActiveColumns(X)
    columns.select(np.arange(X.shape[1]))
    return columns.X if columns.gathered else None
