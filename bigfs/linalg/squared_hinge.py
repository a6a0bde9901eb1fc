"""The squared hinge loss along a line, for the Newton steps of linear SVMs."""

from __future__ import annotations

import numpy as np

from bigfs.types import AnyArray, FloatArray

LINE_SEARCH_STEPS = 60  # halvings in double precision; Newton's steps in between end it earlier


def line_search(
    a: FloatArray,
    b: FloatArray,
    F: FloatArray,
    XS: FloatArray,
    Y: AnyArray,
    C: float,
    s: FloatArray | None = None,
) -> FloatArray:
    """Return the t (r,) of least P(U + tS) for each machine.

    a and b (r,) are the dots of S with U and with itself, and F + t XS are the decision values. The
    slope of P along S increases and is linear between the points where a sample's loss sets in.
    Newton's method finds its root inside a bracket.
    """
    low, high, t = np.zeros(len(a)), np.full(len(a), np.inf), np.ones(len(a))
    for _ in range(LINE_SEARCH_STEPS):
        slack: FloatArray = np.maximum(1 - Y * (F + t * XS), 0)
        slope = a + t * b - 2 * C * dots(Y * weighted(slack, s), XS)
        curvature = b + 2 * C * dots(XS, weighted(XS * (slack > 0), s))
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


def dots(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the dot product of each pair of columns."""
    products: FloatArray = np.einsum("ij,ij->j", A, B)
    return products
