"""The largest eigenvalues of a symmetric N, by Lanczos iterations with thick restarts.

The rows of V are an orthonormal basis, and H = V N Vᵀ has the Ritz values and vectors. Once the
basis is full, its best Ritz vectors take its place, and the iterations continue from there [Wu and
Simon, SIAM Journal on Matrix Analysis and Applications 22, 2000].

The space of one first vector holds one copy of a repeated eigenvalue until rounding brings the
next. So the solved vectors are checked: iterations from a random vector in their complement look
for an eigenvalue that is larger than the last one. If they find one, they continue with it.

ARPACK works alike, but holds three arrays of the size of V in the end. This is one, and the vectors
that are returned take its memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigfs.types import AnyArray, FloatArray

MIN_BASIS = 24  # vectors of the basis, at least
STRIP = 4096  # columns of the basis that are rotated at a time
# A vector of which less is left, once its part in the basis is taken out, has lost digits. It is
# made orthogonal once more.
ORTHOGONAL = 0.7
MAX_ROUNDS = 5  # of that, for a vector in the span of the basis


def largest_eigenvectors(
    multiply: Callable[[AnyArray], AnyArray],
    n: int,
    count: int,
    *,
    tol: float,
    max_iter: int,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues of N, decreasing, and their vectors, which are rows."""
    # rows of V: solved and checked at present, in the basis at a restart, and in a full basis
    solved, kept, size = 0, 0, basis_size(count)
    values: FloatArray = np.empty(0)
    V: FloatArray = np.empty((size + 1, n))
    H = np.zeros((size, size))
    rng = np.random.default_rng(seed)
    V[0] = rng.normal(size=n)
    _make_orthonormal(V, 0, rng)
    for n_filled in range(1, max_iter + 1):
        for j in range(kept, size):
            V[j + 1] = multiply(V[j, :, None])[:, 0]
            products, rest = _make_orthonormal(V, j + 1, rng)
            H[: j + 1, j] = H[j, : j + 1] = products
        ritz, S = np.linalg.eigh(H[solved:, solved:])
        ritz, S = ritz[::-1], S[:, ::-1]
        residuals = np.abs(rest * S[-1])
        if solved:
            margin = values[-1] - ritz[0]
            if n_filled == max_iter or (-tol <= margin and residuals[0] <= max(margin, tol)):
                break
            kept = (size - count) // 2
            _rotate(V[count:], S[:, :kept])
            diagonal = np.append(values, ritz[:kept])
            if margin < -tol:
                solved = 0
        else:
            n_solved, values = int(np.count_nonzero(residuals[:count] <= tol)), ritz[:count]
            goes_on = n_solved < count and n_filled < max_iter
            kept = min(n_solved, (size - count) // 2) if goes_on else 0  # as ARPACK does
            diagonal = ritz[: count + kept]
            _rotate(V, S[:, : count + kept])
            if n_filled == max_iter:
                break
            if n_solved == count:
                solved = count
                V[size] = rng.normal(size=n)
        kept += count
        V[kept] = V[size]
        if kept == solved:
            _make_orthonormal(V, kept, rng)
        H[:] = 0
        H[:kept, :kept] = np.diag(diagonal)
    return values, V[:count].copy()  # the basis goes


def basis_size(count: int) -> int:
    """Return how many vectors the basis for `count` eigenvalues has."""
    return max(2 * count + 1, MIN_BASIS)


def _make_orthonormal(V: FloatArray, j: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Replace row j of V by its part orthogonal to the rows before, at unit length."""
    v, products, rest = V[j], np.zeros(j), 1.0
    for _ in range(MAX_ROUNDS):
        before = float(np.linalg.norm(v))
        part = V[:j] @ v
        v -= part @ V[:j]
        products += rest * part
        left = float(np.linalg.norm(v))
        rest *= left
        if left == 0:
            v[:] = rng.normal(size=len(v))
            continue
        v /= left
        if left > ORTHOGONAL * before:
            break
    return products, rest


def _rotate(V: FloatArray, S: FloatArray) -> None:
    """Write SᵀV over the first rows of V, for an S with a row per vector of the basis."""
    size, count = S.shape
    for first in range(0, V.shape[1], STRIP):
        strip = slice(first, first + STRIP)
        V[:count, strip] = S.T @ V[:size, strip]
