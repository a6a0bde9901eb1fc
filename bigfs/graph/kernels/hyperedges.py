"""The kernels of hypergraphs: sums over the samples of hyperedges.

A hypergraph is given by the samples of all hyperedges, one hyperedge after the other, and by where
each one begins. Every sum has the order of the hyperedges.
"""

from __future__ import annotations

import numba
import numpy as np

from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

_jit = numba.njit(nogil=True, cache=True)


@_jit
def edge_sizes(indices: AnyArray, n_edges: int) -> IntArray:
    """Return the number of samples of each hyperedge, from the hyperedges of each sample."""
    sizes = np.zeros(n_edges, dtype=np.int64)
    for k in indices:
        sizes[k] += 1
    return sizes


@_jit
def transpose(indptr: AnyArray, indices: AnyArray, n_edges: int) -> tuple[IntArray, AnyArray]:
    """Return where the hyperedges begin, and their samples, from the hyperedges of each sample. Or
    where the samples begin, and their hyperedges, from the samples of each hyperedge."""
    starts = np.zeros(n_edges + 1, dtype=np.int64)
    starts[1:] = np.cumsum(edge_sizes(indices, n_edges))
    samples = np.empty(len(indices), dtype=np.int32)
    next_place = starts[:-1].copy()
    for v in range(len(indptr) - 1):
        for p in range(indptr[v], indptr[v + 1]):
            k = indices[p]
            samples[next_place[k]] = v
            next_place[k] += 1
    return starts, samples


@_jit
def equal_to_previous(starts: IntArray, samples: AnyArray, order: IntArray) -> BoolArray:
    """Return whether each hyperedge in an order has the samples of the one before it."""
    equal = np.zeros(len(order), dtype=np.bool_)
    for i in range(1, len(order)):
        a, b = starts[order[i - 1]], starts[order[i]]
        size = starts[order[i - 1] + 1] - a
        if starts[order[i] + 1] - b != size:
            continue
        p = 0
        while p < size and samples[a + p] == samples[b + p]:
            p += 1
        equal[i] = p == size
    return equal


@_jit
def vertex_sums(starts: IntArray, samples: AnyArray, x: FloatArray, n: int) -> FloatArray:
    """Return Hx (n)."""
    sums = np.zeros(n)
    for k in range(len(x)):
        for p in range(starts[k], starts[k + 1]):
            sums[samples[p]] += x[k]
    return sums


@_jit
def edge_sums(starts: IntArray, samples: AnyArray, y: AnyArray) -> AnyArray:
    """Return Hᵀy (e), in the type of y: modulo 2⁶⁴ for uint64."""
    sums = np.zeros(len(starts) - 1, dtype=y.dtype)
    for k in range(len(sums)):
        for p in range(starts[k], starts[k + 1]):
            sums[k] += y[samples[p]]
    return sums


@_jit
def edge_maxima(starts: IntArray, samples: AnyArray, y: FloatArray) -> FloatArray:
    """Return the largest y of the samples of each hyperedge (e), for y ≥ 0."""
    maxima = np.zeros(len(starts) - 1)
    for k in range(len(maxima)):
        for p in range(starts[k], starts[k + 1]):
            maxima[k] = max(maxima[k], y[samples[p]])
    return maxima


@_jit
def edge_rows(
    starts: IntArray,
    samples: AnyArray,
    root: FloatArray,
    weights: FloatArray,
    V: FloatArray,
    Z: FloatArray,
) -> None:
    """Make Z = diag(weights) Hᵀ D_v^-½ V (e × r), for V (n × r). Eight columns, a line of the
    cache, are summed at a time."""
    whole = V.shape[1] - V.shape[1] % 8
    rest = np.empty(V.shape[1] - whole)
    for k in range(len(weights)):
        first, last, w = starts[k], starts[k + 1], weights[k]
        if w == 0:
            Z[k] = 0
            continue
        for c in range(0, whole, 8):
            a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for p in range(first, last):
                v, x = samples[p], root[samples[p]]
                a0 += x * V[v, c]
                a1 += x * V[v, c + 1]
                a2 += x * V[v, c + 2]
                a3 += x * V[v, c + 3]
                a4 += x * V[v, c + 4]
                a5 += x * V[v, c + 5]
                a6 += x * V[v, c + 6]
                a7 += x * V[v, c + 7]
            Z[k, c], Z[k, c + 1], Z[k, c + 2], Z[k, c + 3] = w * a0, w * a1, w * a2, w * a3
            Z[k, c + 4], Z[k, c + 5], Z[k, c + 6], Z[k, c + 7] = w * a4, w * a5, w * a6, w * a7
        rest[:] = 0
        for p in range(first, last):
            v, x = samples[p], root[samples[p]]
            for c in range(len(rest)):
                rest[c] += x * V[v, whole + c]
        for c in range(len(rest)):
            Z[k, whole + c] = w * rest[c]


@_jit
def subtract_edge_rows(
    starts: IntArray,
    edges: AnyArray,
    root: FloatArray,
    m: FloatArray,
    Z: FloatArray,
    V: FloatArray,
) -> None:
    """Replace V by diag(m)V − D_v^-½ H Z, for Z (e × r), eight columns (a cache line) at a time."""
    whole = V.shape[1] - V.shape[1] % 8
    rest = np.empty(V.shape[1] - whole)
    for v in range(len(m)):
        first, last, x = starts[v], starts[v + 1], root[v]
        for c in range(0, whole, 8):
            a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for p in range(first, last):
                k = edges[p]
                a0 += Z[k, c]
                a1 += Z[k, c + 1]
                a2 += Z[k, c + 2]
                a3 += Z[k, c + 3]
                a4 += Z[k, c + 4]
                a5 += Z[k, c + 5]
                a6 += Z[k, c + 6]
                a7 += Z[k, c + 7]
            V[v, c] = m[v] * V[v, c] - x * a0
            V[v, c + 1] = m[v] * V[v, c + 1] - x * a1
            V[v, c + 2] = m[v] * V[v, c + 2] - x * a2
            V[v, c + 3] = m[v] * V[v, c + 3] - x * a3
            V[v, c + 4] = m[v] * V[v, c + 4] - x * a4
            V[v, c + 5] = m[v] * V[v, c + 5] - x * a5
            V[v, c + 6] = m[v] * V[v, c + 6] - x * a6
            V[v, c + 7] = m[v] * V[v, c + 7] - x * a7
        rest[:] = 0
        for p in range(first, last):
            for c in range(len(rest)):
                rest[c] += Z[edges[p], whole + c]
        for c in range(len(rest)):
            V[v, whole + c] = m[v] * V[v, whole + c] - x * rest[c]
