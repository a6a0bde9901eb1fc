"""Linear SVMs with the squared hinge loss of few samples, by their kernel K = X̂X̂ᵀ.

The weights are U = X̂ᵀB for B (n × r), and the decision values are F = KB. With S the samples of
positive loss, a Newton step goes to

    B_S = (K_SS + diag(1 / 2Cs_S))⁻¹ y_S,    B = 0 outside of S      [Chapelle, 2007]

and a line search ends it short of there where the objective would rise. The gradient is X̂ᵀδ with
δ = B − 2C y ⊙ s ⊙ ξ, so that the duality gap ½‖∇P‖² = ½ δᵀKδ needs no pass over X.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from bigfs import engine
from bigfs.linalg.prox import column_dots
from bigfs.linalg.sample_kernel import kernel
from bigfs.linalg.squared_hinge import Machines, line_search, weighted
from bigfs.matrix import Matrix
from bigfs.types import BoolArray, FloatArray

MOST_WORK = 10**10  # r n³ of a step, with which it is still faster than conjugate gradients
MATRICES = 4  # n × n matrices at a time


class KernelState(NamedTuple):
    """The machines after some steps."""

    B: FloatArray  # n × r
    F: FloatArray  # n × r: the decision values KB
    delta: FloatArray  # n × r: the gradient of P is X̂ᵀ delta
    objective: FloatArray  # (r,): P
    gap: FloatArray  # (r,): (P − D) / P


def is_faster(X: Matrix, r: int, features: BoolArray | None = None) -> bool:
    """Return whether r machines on X have few enough samples for their kernel."""
    n, d = X.shape[0], X.shape[1] if features is None else int(features.sum())
    fits = MATRICES * 8 * n**2 <= engine.SHARES.svm_kernel * engine.planned_memory()
    has_kernel = X.local or bool(X.column_tiles)
    return has_kernel and n <= d and r * n**3 <= MOST_WORK and fits


class KernelSVM(Machines):
    """Few samples, by their kernel. X is in memory or has the layout by columns."""

    @cached_property
    def K(self) -> FloatArray:
        """X̂X̂ᵀ (n × n) of the features that may have a weight."""
        mask = np.ones(self.X.shape[1]) if self.features is None else self.features
        return kernel(self.X, mask.astype(np.float64)) + 1

    def start(self, F: FloatArray) -> KernelState:
        """Return the machines of the samples that have a loss at the decision values F."""
        B = np.column_stack([self.solution(k, F[:, k]) for k in range(F.shape[1])])
        return self.state(B, self.K @ B)

    def state(self, B: FloatArray, F: FloatArray) -> KernelState:
        """Return the state at B with the decision values F."""
        slack: FloatArray = np.maximum(1 - self.Y * F, 0)
        loss = weighted(slack, self.s)
        objective = column_dots(B, F) / 2 + self.C * column_dots(slack, loss)
        delta = B - 2 * self.C * self.Y * loss
        gap = column_dots(delta, self.K @ delta) / 2 / np.where(objective > 0, objective, 1)
        return KernelState(B, F, delta, objective, np.maximum(gap, 0))

    def step(self, state: KernelState) -> KernelState:
        """Run one Newton step of every machine that is above the tolerance."""
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
        """Return the B (n,) of machine k whose samples of positive loss are those at f."""
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
            B[S] = la.solve(A, y[S].astype(np.float64), assume_a="pos", overwrite_a=True)
        return B

    def weights(self, B: FloatArray) -> FloatArray:
        """Return X̂ᵀB (d + 1 × r), zero at the features that may have no weight. Reads X once."""
        W: FloatArray = self.X.T @ B
        if self.features is not None:
            W[~self.features] = 0
        return np.concatenate([W, B.sum(axis=0)[None]])
