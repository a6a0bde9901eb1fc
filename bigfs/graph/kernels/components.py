"""Connected components by union-find, from neighbor lists that come block by block.

`parent` (n,) leads from each sample to the lowest number of its component, over numbers that fall.
"""

from __future__ import annotations

import numba

from bigfs.types import AnyArray

_jit = numba.njit(nogil=True, cache=True)


@_jit
def _root(parent: AnyArray, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@_jit
def unite(parent: AnyArray, i: int, j: int) -> bool:
    """Join the components of two samples. Return whether they were apart."""
    a, b = _root(parent, i), _root(parent, j)
    parent[max(a, b)] = min(a, b)
    return bool(a != b)


@_jit
def unite_neighbors(parent: AnyArray, first: int, index: AnyArray) -> None:
    """Join each sample of a block of lists, whose first sample is `first`, with its neighbors."""
    for i in range(index.shape[0]):
        for j in index[i]:
            if j >= 0:
                unite(parent, first + i, j)


@_jit
def flatten(parent: AnyArray) -> None:
    """Let each sample lead to the lowest number of its component at once."""
    for i in range(len(parent)):  # the parent of i is lower, and so is flat already
        parent[i] = parent[parent[i]]
