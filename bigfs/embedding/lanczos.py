"""The largest eigenvalues of a symmetric N, by Lanczos iterations with thick restarts.

The rows of V are an orthonormal basis, and H = V N Vᵀ has the Ritz values and vectors. Once the
basis is full, its best Ritz vectors take its place, and the iterations go on from there [Wu and
Simon, SIAM Journal on Matrix Analysis and Applications 22, 2000].

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
    """Return the largest eigenvalues of N, decreasing, and their vectors, which are rows.

    Parameters
    ----------
    multiply : callable
        Function from V (n × m) to N V.
    n : int
        Number of rows of N, more than `basis_size(count)`.
    count : int
        Number of eigenvalues.
    tol : float
        Largest ‖N v − λ v‖ of a vector.
    max_iter : int
        Maximum number of times that the basis is filled. The best vectors by then are returned.
    seed : int
        Seed of the first vector.

    Returns
    -------
    values : ndarray of shape (count,)
        The eigenvalues.
    vectors : ndarray of shape (count, n)
        Their vectors, orthonormal.
    """
    size, kept = basis_size(count), 0
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
        values, S = np.linalg.eigh(H)
        values, S = values[::-1], S[:, ::-1]
        n_solved = int(np.count_nonzero(np.abs(rest * S[-1, :count]) <= tol))
        if n_solved == count or n_filled == max_iter:
            break
        kept = count + min(n_solved, (size - count) // 2)  # as ARPACK does
        _rotate(V, S[:, :kept])
        V[kept] = V[size]
        H[:] = 0
        H[:kept, :kept] = np.diag(values[:kept])
    _rotate(V, S[:, :count])
    V.resize((count, n), refcheck=False)
    return values[:count], V


def basis_size(count: int) -> int:
    """Return how many vectors the basis for `count` eigenvalues has."""
    return max(2 * count + 1, MIN_BASIS)


def _make_orthonormal(V: FloatArray, j: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Replace row j of V by what is orthogonal to the rows before, at unit length.

    Return its products with them (j), and the length of what was left of it. If the row is in
    their span, another one replaces it, and the length is zero but for rounding.
    """
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
