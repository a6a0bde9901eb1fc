"""From neighbours to a weighted graph: affinity A (n × n, sparse), its Laplacians, its
components.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

from bigfs.graph.neighbors import Neighbours
from bigfs.types import AnyArray

Weights = Literal["binary", "cosine", "heat"]
Kind = Literal["plain", "normalized", "random-walk"]


def affinity(
    neighbours: Neighbours,
    weights: Weights = "binary",
    *,
    width: float | None = None,
    symmetrize: Literal["or", "and"] = "or",
) -> sp.csr_array:
    """The symmetric affinity A (n × n csr, float64, zero diagonal) of a kNN graph.

    Parameters
    ----------
    weights : "binary" (1), "cosine" (1 − distance; for a graph of the cosine metric), or "heat"
        (exp(−d²/2t²), with d the distance of the graph's metric).
    width : t of the heat kernel; default: the mean distance to a neighbour.
    symmetrize : an edge where either end has the other among its neighbours ("or", the larger
        weight), or where both have ("and").

    Raises
    ------
    ValueError : for cosine weights of a Euclidean graph, or a width that is not positive.
    """
    n = len(neighbours.index)
    known = neighbours.index >= 0
    distance = neighbours.distance[known]
    if weights == "binary":
        values = np.ones(len(distance))
    elif weights == "cosine":
        if neighbours.metric != "cosine":
            raise ValueError(
                f"cosine weights need a graph of the cosine metric; got "
                f'{neighbours.metric}: use "binary" or "heat"'
            )
        values = 1.0 - distance
    elif weights == "heat":
        values = _heat(distance, width)
    else:
        raise ValueError(f'weights must be "binary", "cosine" or "heat"; got {weights!r}')
    indptr = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    A = sp.csr_array((values, neighbours.index[known], indptr), shape=(n, n))
    if symmetrize not in ("or", "and"):
        raise ValueError(f'symmetrize must be "or" or "and"; got {symmetrize!r}')
    A = sp.csr_array(A.maximum(A.T) if symmetrize == "or" else A.minimum(A.T))
    A.eliminate_zeros()
    A.sort_indices()
    return A


def _heat(distance: AnyArray, width: float | None) -> AnyArray:
    if width is None:
        width = float(distance.mean()) if len(distance) else 1.0
        if width == 0:  # every neighbour is a duplicate
            return np.ones_like(distance)
    elif not width > 0:
        raise ValueError(f"the width of the heat kernel must be positive; got {width}")
    return np.exp(-(distance**2) / (2 * width**2))


def laplacian(A: sp.csr_array, kind: Kind = "plain") -> sp.csr_array:
    """L (n × n csr) of a symmetric affinity.

    "plain": D − A.  "normalized": I − D^-½ A D^-½.  "random-walk": I − D⁻¹A. A vertex without edges
    has a zero row in all three, so 0 is an eigenvalue once for each connected component.
    """
    degree, left, right = _scales(A, kind)
    diagonal = degree if kind == "plain" else (degree > 0).astype(np.float64)
    return sp.csr_array(sp.diags_array(diagonal) - sp.diags_array(left) @ A @ sp.diags_array(right))


def laplacian_operator(A: sp.csr_array, kind: Kind = "plain") -> LinearOperator:
    """`laplacian(A, kind)` through products with A; nothing is copied."""
    degree, left, right = _scales(A, kind)
    diagonal = degree if kind == "plain" else (degree > 0).astype(np.float64)

    def times(V: AnyArray) -> AnyArray:
        tall = V.reshape(V.shape[0], -1)
        return np.asarray(
            diagonal[:, None] * tall - left[:, None] * (A @ (right[:, None] * tall))
        ).reshape(V.shape)

    def transposed(V: AnyArray) -> AnyArray:
        tall = V.reshape(V.shape[0], -1)
        return np.asarray(
            diagonal[:, None] * tall - right[:, None] * (A @ (left[:, None] * tall))
        ).reshape(V.shape)

    return LinearOperator(
        A.shape,
        dtype=np.float64,
        matvec=times,
        matmat=times,
        rmatvec=transposed,
        rmatmat=transposed,
    )


def _scales(A: sp.csr_array, kind: Kind) -> tuple[AnyArray, AnyArray, AnyArray]:
    """D's diagonal, and the diagonals left and right of A in the Laplacian."""
    degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    ones = np.ones_like(degree)
    if kind == "plain":
        return degree, ones, ones
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    if kind == "random-walk":
        return degree, inverse, ones
    if kind != "normalized":
        raise ValueError(f'kind must be "plain", "normalized" or "random-walk"; got {kind!r}')
    return degree, np.sqrt(inverse), np.sqrt(inverse)


@dataclass(frozen=True)
class Components:
    """Connected components: their count, each sample's component, their sizes, vertices without
    edges.

    With c components a Laplacian has eigenvalue 0 c times, and its null vectors tell only the
    components apart: an embedding drops all c and describes each component by itself.
    """

    count: int
    labels: AnyArray
    sizes: AnyArray
    isolated: int


def components(A: sp.csr_array) -> Components:
    """The connected components of a symmetric affinity."""
    count, labels = connected_components(A, directed=False)
    sizes = np.bincount(labels, minlength=count)
    return Components(int(count), labels, sizes, int(np.sum(np.diff(sp.csr_array(A).indptr) == 0)))
