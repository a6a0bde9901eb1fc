"""The scores of the features: which m of them a pass over X finds for each problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.constraints import Constraints
from bigfs.cutting_plane.columns import Residual
from bigfs.cutting_plane.elimination import TIE, best_first
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.cutting_plane.tiled_columns import TiledColumns
from bigfs.types import FloatArray, IntArray


def largest_scores(
    problems: Sequence[Relaxation],
    states: Sequence[CuttingPlaneState],
    residuals: Sequence[Residual],
    sizes: list[int] | None = None,
) -> list[tuple[IntArray, FloatArray]]:
    """Return, for each problem, the features of the largest s_j = ‖(XcᵀV)_j‖², and these s_j.

    They come best first, as many as `sizes` says, or m for each set that a pass gathers. The kept
    features come before the others. One pass over X serves all problems, which share X and their
    constraints. Problems whose residual only tasks make share their gathered columns too.
    """
    data, constraints = problems[0].data, problems[0].constraints
    sizes = sizes or [problem.m * data.sets_per_pass for problem in problems]
    ends = np.cumsum([problem.data.r for problem in problems])
    assert all(problem.data.X is data.X for problem in problems), "one X for all problems"
    if isinstance(data, TiledColumns) and residuals[0].V is None:
        assert all(problem.data is data for problem in problems), "one set of gathered columns"
        weights, step = [(state.features, state.W) for state in states], data.weights_per_pass
        norms2 = [
            _group_norms2(data.residual_products(part), ends[: len(part)])
            for part in (weights[k : k + step] for k in range(0, len(weights), step))
        ]
        tiles = [_largest(np.hstack(norms2), 0, sizes, constraints)]
    else:
        V = np.hstack([residual.V for residual in residuals if residual.V is not None])
        if data.X.column_tiles:
            tiles = data.X.map(_largest_of_tile, 1, V, ends, sizes, constraints, label="scores")
        else:
            tiles = [_largest(_group_norms2(data.X.T @ V, ends), 0, sizes, constraints)]
    result = []
    for k, size in enumerate(sizes):
        features = np.concatenate([tile[k][0] for tile in tiles])
        s = np.concatenate([tile[k][1] for tile in tiles])
        best = best_first(s, features, np.isin(features, constraints.kept))[:size]
        result.append((features[best], s[best]))
    return result


def _largest_of_tile(
    block: Any,
    start: int,
    stop: int,
    V: FloatArray,
    ends: IntArray,
    sizes: list[int],
    constraints: Constraints,
) -> list[tuple[IntArray, FloatArray]]:
    if sp.issparse(block):
        columns = sp.csc_array(block)
        s = np.empty((block.shape[1], len(ends)))
        _column_scores(columns.indptr, columns.indices, columns.data, V, ends, s)
    else:
        s = _group_norms2(block.T @ V, ends)
    return _largest(s, start, sizes, constraints)


def _group_norms2(P: FloatArray, ends: IntArray) -> FloatArray:
    """Return the squared norm, per row, of each group of columns; group k ends before ends[k]."""
    groups = np.split(P, ends[:-1], axis=1)
    return np.stack([np.einsum("jr,jr->j", group, group) for group in groups], axis=1)


@njit(nogil=True, cache=True)
def _column_scores(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    V: FloatArray,
    ends: IntArray,
    s: FloatArray,
) -> None:
    """Fill s with `_group_norms2` of XᵀV, one column of X at a time: no d × r array is made."""
    product = np.empty(V.shape[1])
    for j in range(len(indptr) - 1):
        if len(product) == 1:
            s[j, 0] = _product(indptr[j], indptr[j + 1], rows, values, V[:, 0]) ** 2
            continue
        product[:] = 0
        for p in range(indptr[j], indptr[j + 1]):
            x = np.float64(values[p])
            for c in range(len(product)):
                product[c] += x * V[rows[p], c]
        c = 0
        for k in range(len(ends)):
            s[j, k] = 0
            while c < ends[k]:
                s[j, k] += product[c] ** 2
                c += 1


@njit(nogil=True, cache=True)
def _product(first: int, last: int, rows: IntArray, values: FloatArray, v: FloatArray) -> float:
    """Return the product of a column with one vector, which is faster than with several."""
    total = 0.0
    for p in range(first, last):
        total += np.float64(values[p]) * v[rows[p]]
    return total


def _largest(
    scores: FloatArray, start: int, sizes: list[int], constraints: Constraints
) -> list[tuple[IntArray, FloatArray]]:
    """Return the m largest of each column of `scores`, as `best_first` orders them.

    The kept features count as the largest ones, and the absent ones are left out.
    """
    features = np.arange(start, start + len(scores))
    own = constraints.within(features)
    result = []
    for s, m in zip(scores.T, sizes, strict=True):
        rank, is_kept = s.copy(), np.zeros(len(s), dtype=bool)
        is_kept[own.kept] = True
        rank[own.kept], rank[own.absent] = np.inf, -np.inf
        least = np.partition(rank, len(rank) - m)[len(rank) - m] if m < len(rank) else -np.inf
        if np.isfinite(least):
            least *= 1 - 2 * TIE  # scores are not negative
        candidates = np.flatnonzero((rank >= least) & (rank > -np.inf))
        best = candidates[best_first(s[candidates], features[candidates], is_kept[candidates])[:m]]
        result.append((features[best], s[best]))
    return result
