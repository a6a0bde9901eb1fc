"""Linear SVMs with the squared hinge loss of many classes, trained together on rows in memory.

P is the objective of `bigfs.linalg.svm` without weights of the samples. With X̂ = [X, 1] and
û = [w; b], its dual is

    D(a) = Σ_i a_i − ½‖û‖² − Σ_i a_i² / 4C,      a ≥ 0,   û = Σ_i a_i y_i x̂_i

A step at sample i maximizes D over a_i [Hsieh et al., ICML 2008, algorithm 3]:

    a_i ← max(0, a_i − (y_i û·x̂_i − 1 + a_i / 2C) / (‖x̂_i‖² + 1 / 2C))

LIBLINEAR takes the steps of one class after the other and reads all samples for each. Here every
classifier takes its step while a sample is at hand. The weights of a feature lie side by side, so
one vector instruction serves several classifiers. None depends on which others it is trained with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

LANES = Setting(32)  # classifiers that are trained together: on text, the caches hold their weights
# sweeps over the samples between two measurements of the gap, and at most. Tf-idf takes 20 to 25,
# columns of counts or of images more than 100. Sixty take about the time of LIBLINEAR.
SWEEPS = Setting(5)
MAX_SWEEPS = Setting(60)


class DualClassifiers(NamedTuple):
    """Trained classifiers."""

    U: FloatArray  # d + 1 × r: the weights, and the intercepts as the last row
    gap: FloatArray  # (r,): (P − D) / P


def projected_memory(n: int, d: int, r: int) -> int:
    """Return the bytes of the vectors of r classifiers, at most `LANES`, on n × d samples."""
    return r * (24 * d + 18 * n)


def train(
    X: sp.csr_array, labels: BoolArray, *, C: float = 1.0, tol: float = 1e-6
) -> DualClassifiers:
    """Train a classifier per label."""
    n, d = X.shape
    rows = X.data, X.indices, X.indptr
    norms = X.power(2, dtype=np.float64).sum(axis=1)
    Y = np.ascontiguousarray(np.where(labels, np.int8(1), np.int8(-1)))
    a, U = np.zeros(Y.shape), np.zeros((d + 1, Y.shape[1]))
    classifiers = DualClassifiers(np.zeros(U.shape), np.full(Y.shape[1], np.nan))
    left = np.arange(Y.shape[1])  # the classifiers that are still trained
    random = np.random.default_rng(0)
    for sweep in range(1, MAX_SWEEPS.value + 1):
        _sweep(random.permutation(n), *rows, Y, norms, C, a, U, *np.empty((2, Y.shape[1])))
        if sweep % SWEEPS.value:
            continue
        primal, dual, f = np.zeros((3, Y.shape[1]))
        _add_objectives(*rows, Y, C, a, U, f, primal, dual)
        gap = (primal - dual) / primal
        classifiers.U[:, left], classifiers.gap[left] = U, gap
        moves = (gap > tol) & (gap <= tol ** (sweep / MAX_SWEEPS.value))
        if not moves.any():
            break
        if not moves.all():
            left, Y, a, U = (np.ascontiguousarray(p[..., moves]) for p in (left, Y, a, U))
    return classifiers


@njit(nogil=True, cache=True)
def _sweep(
    order: IntArray,
    values: FloatArray,
    columns: IntArray,
    starts: IntArray,
    Y: AnyArray,
    norms: FloatArray,
    C: float,
    a: FloatArray,
    U: FloatArray,
    f: FloatArray,
    step: FloatArray,
) -> None:
    """Take a step of every classifier at each sample, in this order. a and U change in place, and
    the last two arrays (r,) are overwritten."""
    d, r = U.shape[0] - 1, U.shape[1]
    b = U[d]
    for i in order:
        _decide(i, values, columns, starts, U, f)
        size = norms[i] + 1 + 0.5 / C
        moves = False
        for c in range(r):
            after = max(a[i, c] - (Y[i, c] * f[c] - 1 + a[i, c] * 0.5 / C) / size, 0.0)
            step[c] = (after - a[i, c]) * Y[i, c]
            moves |= step[c] != 0
            a[i, c] = after
        if moves:
            for c in range(r):
                b[c] += step[c]
            for k in range(starts[i], starts[i + 1]):
                value, w = values[k], U[columns[k]]
                for c in range(r):
                    w[c] += value * step[c]


@njit(nogil=True, cache=True)
def _add_objectives(
    values: FloatArray,
    columns: IntArray,
    starts: IntArray,
    Y: AnyArray,
    C: float,
    a: FloatArray,
    U: FloatArray,
    f: FloatArray,
    primal: FloatArray,
    dual: FloatArray,
) -> None:
    """Add P and D of each classifier to the last two. Loops add up the same for any number of
    classifiers. f (r,) is overwritten."""
    n, r = a.shape
    for j in range(len(U)):
        w = U[j]
        for c in range(r):
            primal[c] += w[c] * w[c] / 2
            dual[c] -= w[c] * w[c] / 2
    for i in range(n):
        _decide(i, values, columns, starts, U, f)
        for c in range(r):
            slack = max(1 - Y[i, c] * f[c], 0.0)
            primal[c] += C * slack * slack
            dual[c] += a[i, c] - a[i, c] * a[i, c] * 0.25 / C


@njit(nogil=True, cache=True)
def _decide(
    i: int, values: FloatArray, columns: IntArray, starts: IntArray, U: FloatArray, f: FloatArray
) -> None:
    """Write the decision values of a sample into f (r,)."""
    r = len(f)
    b = U[len(U) - 1]
    for c in range(r):
        f[c] = b[c]
    for k in range(starts[i], starts[i + 1]):
        value, w = values[k], U[columns[k]]
        for c in range(r):
            f[c] += value * w[c]
