"""The kernels of hypergraphs: sums over the samples of hyperedges.

A hypergraph is given by the samples of all hyperedges, one hyperedge after the other, and by where
each one begins. The order of every sum is that of the hyperedges.
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
    """Return where the hyperedges begin, and their samples, from the hyperedges of each sample."""
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
def subtract_similarity(
    starts: IntArray,
    samples: AnyArray,
    root: FloatArray,
    weights: FloatArray,
    V: FloatArray,
    result: FloatArray,
) -> None:
    """Subtract D_v^-½ H diag(weights) Hᵀ D_v^-½ V from `result`, both n × r."""
    total = np.empty(V.shape[1])
    for k in range(len(weights)):
        if weights[k] == 0:
            continue
        total[:] = 0
        for p in range(starts[k], starts[k + 1]):
            v, scale = V[samples[p]], root[samples[p]]
            for c in range(len(total)):
                total[c] += scale * v[c]
        total *= weights[k]
        for p in range(starts[k], starts[k + 1]):
            v, scale = result[samples[p]], root[samples[p]]
            for c in range(len(total)):
                v[c] -= scale * total[c]


@_jit
def add_strip_sums(
    starts: IntArray,
    samples: AnyArray,
    root: FloatArray,
    weights: FloatArray,
    P: FloatArray,
    squares: FloatArray,
    g: FloatArray,
) -> None:
    """Add ‖r_e‖² to `squares` (e) and g_v to `g` (n), for a strip of the columns of P (n × s)."""
    total = np.empty(P.shape[1])
    for k in range(len(weights)):
        total[:] = 0
        for p in range(starts[k], starts[k + 1]):
            v, scale = P[samples[p]], root[samples[p]]
            for c in range(len(total)):
                total[c] += scale * v[c]
        for c in range(len(total)):
            squares[k] += total[c] * total[c]
        if weights[k] == 0:
            continue
        for p in range(starts[k], starts[k + 1]):
            v, product = P[samples[p]], 0.0
            for c in range(len(total)):
                product += v[c] * total[c]
            g[samples[p]] += weights[k] * root[samples[p]] * product


@_jit
def add_pair_products(
    starts: IntArray, samples: AnyArray, P: FloatArray, products: FloatArray
) -> None:
    """Add ⟨P_u, P_v⟩ of each two samples of a hyperedge, for a strip of the columns of P (n × s).

    The pairs of the k-th hyperedge follow those of the one before it: the second sample with the
    first one, the third sample with the first two, and so on.
    """
    size = 0
    for k in range(len(starts) - 1):
        size = max(size, starts[k + 1] - starts[k])
    rows = np.empty((P.shape[1], size))  # of one hyperedge, transposed
    place = 0
    for k in range(len(starts) - 1):
        first, m = starts[k], starts[k + 1] - starts[k]
        for i in range(m):
            v = P[samples[first + i]]
            for c in range(len(v)):
                rows[c, i] = v[c]
        for i in range(1, m):
            pairs = products[place : place + i]
            for c in range(len(rows)):
                x, row = rows[c, i], rows[c]
                for j in range(i):
                    pairs[j] += x * row[j]
            place += i


@_jit
def pair_sums(
    starts: IntArray,
    samples: AnyArray,
    root: FloatArray,
    weights: FloatArray,
    products: FloatArray,
    norms2: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return ‖r_e‖² (e) and g_v (n) from the products of pairs, and ‖P_v‖² of the samples (n)."""
    size = 0
    for k in range(len(weights)):
        size = max(size, starts[k + 1] - starts[k])
    roots, sums = np.empty(size), np.empty(size)
    squares = np.zeros(len(weights))
    # side by side, because the samples of a hyperedge are anywhere
    of_sample = np.zeros((len(root), 3))
    for v in range(len(root)):
        of_sample[v, 0], of_sample[v, 1] = root[v], root[v] * norms2[v]
    place = 0
    for k in range(len(weights)):
        first, m = starts[k], starts[k + 1] - starts[k]
        for i in range(m):
            numbers = of_sample[samples[first + i]]
            x, total = numbers[0], numbers[1]
            for j in range(i):
                product = products[place + j]
                total += product * roots[j]
                sums[j] += product * x
            roots[i], sums[i] = x, total
            place += i
        for i in range(m):
            part = roots[i] * sums[i]
            squares[k] += part
            of_sample[samples[first + i], 2] += weights[k] * part
    return squares, of_sample[:, 2].copy()
