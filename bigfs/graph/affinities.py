"""Weighted graphs from neighbors: the affinity A (n × n, sparse), its Laplacians and components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bigfs.graph.edges import Neighbors
from bigfs.linalg.prox import inverse_root
from bigfs.types import AnyArray

Weights = Literal["binary", "cosine", "heat"]
Kind = Literal["plain", "normalized"]

NEGLIGIBLE_EDGE = 1e-8  # share of the degrees of its ends, lost in the rounding of an eigenvector


def affinity(neighbors: Neighbors, weights: Weights = "binary") -> sp.csr_array:
    """Return the symmetric affinity A (n × n, zero diagonal) of a kNN graph and its bridges.

    Two samples have an edge if one is among the neighbors of the other. Its weight is 1, or 1 −
    distance ("cosine", for this metric only), or exp(−d²/2t²) with t the mean distance to a
    neighbor ("heat"). A bridge has the weight of any edge of its length. Edges of negligible weight
    are left out, so that what only they join stays apart.
    """
    n = len(neighbors.index)
    is_neighbor = neighbors.index >= 0
    distance = neighbors.distance[is_neighbor]
    if weights == "cosine" and neighbors.metric != "cosine":
        raise ValueError(
            f"cosine weights need a graph of the cosine metric; got "
            f'{neighbors.metric}: use "binary" or "heat"'
        )
    if weights not in ("binary", "cosine", "heat"):
        raise ValueError(f'weights must be "binary", "cosine" or "heat"; got {weights!r}')
    width = float(distance.mean()) if len(distance) else 1.0  # 0 if all are duplicates

    def weigh(distance: AnyArray) -> AnyArray:
        if weights == "binary":
            return np.ones(len(distance))
        if weights == "cosine":
            return 1.0 - distance
        if width == 0:
            return (distance == 0).astype(np.float64)
        return np.exp(-(distance**2) / (2 * width**2))

    indptr = np.concatenate([[0], np.cumsum(is_neighbor.sum(axis=1))])
    A = sp.csr_array((weigh(distance), neighbors.index[is_neighbor], indptr), shape=(n, n))
    A = sp.csr_array(A.maximum(A.T))
    if neighbors.bridges is not None and len(neighbors.bridges.distance):
        ends = tuple(neighbors.bridges.samples.T)
        edges = sp.csr_array((weigh(neighbors.bridges.distance), ends), shape=A.shape)
        A = sp.csr_array(A + edges + edges.T)
    return without_negligible_edges(A)


def without_negligible_edges(A: sp.csr_array) -> sp.csr_array:
    """Return a symmetric affinity without the edges that an eigenvector cannot tell from none:
    those of at most a share 1e-8 of √(d_i d_j)."""
    root = np.sqrt(np.asarray(A.sum(axis=1)).ravel())
    least = NEGLIGIBLE_EDGE * np.repeat(root, np.diff(A.indptr)) * root[A.indices]
    A = sp.csr_array((np.where(A.data > least, A.data, 0), A.indices, A.indptr), shape=A.shape)
    A.eliminate_zeros()
    A.sort_indices()
    return A


def laplacian(A: sp.csr_array, kind: Kind = "plain") -> sp.csr_array:
    """Return the Laplacian L (n × n csr) of a symmetric affinity.

    "plain" is D − A, and "normalized" is I − D^-½ A D^-½. A vertex without edges has a zero row in
    both, so 0 is an eigenvalue once per connected component.
    """
    degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    if kind == "plain":
        return sp.csr_array(sp.diags_array(degree) - A)
    if kind != "normalized":
        raise ValueError(f'kind must be "plain" or "normalized"; got {kind!r}')
    root = sp.diags_array(inverse_root(degree))
    return sp.csr_array(sp.diags_array((degree > 0).astype(np.float64)) - root @ A @ root)


@dataclass(frozen=True)
class Components:
    """The connected components of a graph.

    With c components a Laplacian has c eigenvalues 0. One eigenvector is trivial, and the others
    tell the components apart.
    """

    count: int
    labels: AnyArray  # (n,) the component of each vertex
    sizes: AnyArray  # (count,)
    isolated: int  # number of vertices without edges


def components(A: sp.csr_array) -> Components:
    """Find the connected components of a symmetric affinity."""
    count, labels = connected_components(A, directed=False)
    sizes = np.bincount(labels, minlength=count)
    return Components(int(count), labels, sizes, int(np.sum(np.diff(sp.csr_array(A).indptr) == 0)))
