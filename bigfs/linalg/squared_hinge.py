"""What linear SVMs with the squared hinge loss share: their problem, and the loss along a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigfs.linalg.prox import column_dots
from bigfs.matrix import Matrix
from bigfs.result import Record, Result, iterate
from bigfs.types import AnyArray, BoolArray, FloatArray

LINE_SEARCH_STEPS = 60  # halvings in double precision; Newton's steps in between end it earlier


@dataclass
class Machines:
    """r machines on the same samples, trained by Newton steps."""

    X: Matrix  # (n, d): the samples
    Y: AnyArray  # (n, r): 1 for the samples of a machine's class and −1 for the others
    C: float  # weight of the losses
    tol: float  # relative duality gap below which a machine rests
    features: BoolArray | None = None  # (d,): mask of the features that may have a weight
    sample_weight: FloatArray | None = None  # (n,): weights s of the samples

    @property
    def s(self) -> FloatArray | None:
        """The weights as a column (n × 1)."""
        return None if self.sample_weight is None else self.sample_weight[:, None]

    def step(self, state: Any) -> Any:
        """Run one Newton step of every machine that is above the tolerance."""
        raise NotImplementedError

    def train(self, state: Any, max_iter: int, name: str) -> Result[Any]:
        """Step until every machine's gap is below the tolerance."""
        return iterate(
            self.step,
            state,
            measure=measure,
            stop="gap",
            tol=self.tol,
            max_iter=max_iter,
            name=name,
        )


def measure(state: Any) -> Record:
    """Return the record of a state in the history."""
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
    """Return the t (r,) of least P(U + tS) for each machine."""
    low, high, t = np.zeros(len(a)), np.full(len(a), np.inf), np.ones(len(a))
    for _ in range(LINE_SEARCH_STEPS):
        slack: FloatArray = np.maximum(1 - Y * (F + t * XS), 0)
        slope = a + t * b - 2 * C * column_dots(Y * weighted(slack, s), XS)
        curvature = b + 2 * C * column_dots(XS, weighted(XS * (slack > 0), s))
        low, high = np.where(slope <= 0, t, low), np.where(slope > 0, t, high)
        following = t - np.divide(slope, curvature, out=np.zeros(len(a)), where=curvature > 0)
        inside = (following > low) & (following < high)
        middle = np.where(np.isfinite(high), (low + high) / 2, 2 * t)
        following = np.where(inside | (slope == 0), following, middle)
        if np.all(np.abs(following - t) <= 1e-12 * t):
            break
        t = following
    return t


def weighted(V: AnyArray, s: FloatArray | None) -> AnyArray:
    """Return s ⊙ V for the weights s (n × 1) of the samples."""
    return V if s is None else s * V
