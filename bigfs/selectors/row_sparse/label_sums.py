"""The sums over the samples that a round of SRLSR needs, in one pass and without Y, XW or V.

Y is a function of the solution (W, b): a labeled row is one-hot, and an unlabeled row is the
projection of Wᵀx_i + b on the simplex. So a task makes the rows of V = Y − XW − 1bᵀ that it needs,
and nothing of n × c exists. An unlabeled row on the simplex has no part in V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.matrix.kernels import add_products, begin_sum, most_at_once, n_sums, strips, times
from bigfs.matrix.tiles import OnBlock
from bigfs.types import FloatArray, IntArray

N_SUMS = 5  # rows of sums that `_complete` adds to


class LabelSums(NamedTuple):
    """Sums over the samples at one (W, b)."""

    V: FloatArray  # (c,) Σ v_i
    labeled_V: FloatArray  # (c,) Σ v_i over the labeled samples
    V_norm2: float  # ‖V‖²
    labeled_VY: float  # Σ ⟨v_i, y_i⟩ over the labeled samples
    least_V: float  # Σ min_k v_ik over the unlabeled samples
    product: FloatArray  # d × c: XᵀV


def sum_samples(X: Matrix, codes: IntArray, W: FloatArray, b: FloatArray) -> LabelSums:
    """Return the sums at W (d × c) and b (c), with XᵀV, in a pass over the rows.

    `codes` (n,) has the class of each sample, −1 for an unlabeled one. A matrix that has only the
    layout by columns forms XW (n × c), in two passes.
    """
    c = W.shape[1]
    if X.row_tiles:
        most_at_once(1, W.nbytes)
        total = X.sum(_sums_of_tile, 0, W, b, split=[codes], max_parts=n_sums(W.nbytes))
        sums, product = total[:N_SUMS], total[N_SUMS:]
    else:
        engine.require_memory(24 * len(codes) * c, "X W by columns")
        sums = np.zeros((N_SUMS, c))
        product = np.asarray(X.T @ _rows(X @ W, b, codes, sums)[1])
    V_norm2, labeled_VY, least_V = (float(x) for x in sums[2:].sum(axis=1))
    return LabelSums(sums[0], sums[1], V_norm2, labeled_VY, least_V, product)


def complete_labels(X: Matrix, codes: IntArray, W: FloatArray, b: FloatArray) -> FloatArray:
    """Return the labels Y at (W, b), n × c. One pass, with little more in memory than Y."""
    return _stream_rows(_labels_of, np.empty((len(codes), len(b))), X, codes, W, b)


def distances_to_simplex(X: Matrix, codes: IntArray, W: FloatArray, b: FloatArray) -> FloatArray:
    """Return the largest |v_ik| of each row of V at (W, b) (n,). One pass."""
    return _stream_rows(_distances_of, np.empty(len(codes)), X, codes, W, b)


def _stream_rows(
    task: Callable[..., Any],
    rows: FloatArray,
    X: Matrix,
    codes: IntArray,
    W: FloatArray,
    b: FloatArray,
) -> FloatArray:
    """Fill rows with those that a task returns for each tile."""
    if not X.row_tiles:
        engine.require_memory(24 * len(codes) * len(b), "X W by columns")
        rows[:] = task(X, 0, len(codes), codes, W, b)
        return rows
    each = [[codes[tile.start : tile.stop] for tile in X.row_tiles]]
    parts = engine.stream_tiles(OnBlock(task), X.row_tiles, W, b, each=each, local=X.local)
    for i, part in parts:
        rows[X.row_tiles[i].start : X.row_tiles[i].stop] = part
    X.passes += 1
    return rows


def _labels_of(
    block: Any, start: int, stop: int, codes: IntArray, W: FloatArray, b: FloatArray
) -> FloatArray:
    """Return the labels of the samples of a tile."""
    return _rows(np.asarray(block @ W), b, codes, np.zeros((N_SUMS, len(b))))[0]


def _distances_of(
    block: Any, start: int, stop: int, codes: IntArray, W: FloatArray, b: FloatArray
) -> FloatArray:
    """Return the largest |v_ik| of the samples of a tile."""
    V = _rows(np.asarray(block @ W), b, codes, np.zeros((N_SUMS, len(b))))[1]
    return np.asarray(np.abs(V).max(axis=1))


def _sums_of_tile(
    block: Any,
    start: int,
    stop: int,
    codes: IntArray,
    W: FloatArray,
    b: FloatArray,
    total: FloatArray | None,
) -> FloatArray:
    """Add the sums, and below them blockᵀV."""
    if total is None:
        total = begin_sum(N_SUMS + len(W), len(b))
    for rows, Z in strips(block):
        _, V = _rows(times(Z, W), b, codes[rows], total[:N_SUMS])
        add_products(Z, V, total[N_SUMS:])
    return total


def _rows(
    XW: FloatArray, b: FloatArray, codes: IntArray, sums: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return rows of Y and V, and add their sums."""
    F = np.asarray(XW, dtype=np.float64) + b
    Y = np.empty_like(F)
    _complete(F, codes, Y, sums)
    return Y, F


@njit(nogil=True, cache=True)
def _complete(F: FloatArray, codes: IntArray, Y: FloatArray, sums: FloatArray) -> None:
    """Write the rows of Y, replace F by V = Y − F, and add their sums.

    The projection on the simplex is (f − τ)₊. Its τ comes from the entries that are not yet known
    to be zero, until no more of them fall below it [Michelot 1986].
    """
    c = F.shape[1]
    for i in range(len(F)):
        f, y = F[i], Y[i]
        if codes[i] >= 0:
            y[:] = 0.0
            y[codes[i]] = 1.0
        else:
            largest = f.max()  # 1 does not vanish next to large values
            tau, size = (f.sum() - c * largest - 1.0) / c, c
            while True:
                count, total = 0, 0.0
                for k in range(c):
                    if f[k] - largest > tau:
                        count += 1
                        total += f[k] - largest
                if count in (0, size):  # none is above if f has a NaN
                    break
                tau, size = (total - 1.0) / count, count
            for k in range(c):
                y[k] = max(f[k] - largest - tau, 0.0)
        least = np.inf
        for k in range(c):
            v = y[k] - f[k]
            f[k] = v
            least = min(least, v)
            sums[0, k] += v
            sums[2, k] += v * v
            if codes[i] >= 0:
                sums[1, k] += v
                sums[3, k] += v * y[k]
        if codes[i] < 0:
            sums[4, 0] += least
