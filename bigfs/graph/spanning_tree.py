"""Bridges between the components of a kNN graph: a minimum spanning tree of nearest samples.

The tree grows in Borůvka's rounds. In each round every component but the largest one asks
for the pair of nearest samples of which one is its own, and these pairs join components. So there
are at most log₂(c) rounds. The order of the pairs (distance, then lower and higher sample number)
is total, so the tree depends neither on the blocks nor on the rounds.

A sample searches again only if the nearest one that it knows has come into its own component, and
if it may still be nearer than all others of its component. A component without any positive cosine
to a sample outside stays apart.

Where the graph is approximate, only some samples of each component ask, evenly spaced, so that the
search stays within the cost up to which "auto" takes the exact graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from bigfs import engine
from bigfs.graph.approximate.cost import EXACT_BELOW, predict
from bigfs.graph.approximate.sample import gather
from bigfs.graph.edges import Bridges, Neighbors
from bigfs.graph.kernels import components as kernels
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import NeighborLists
from bigfs.graph.row_blocks import RowBlock, block_size, row_blocks
from bigfs.matrix import Matrix
from bigfs.types import AnyArray, BoolArray, IntArray


def with_bridges(X: Matrix, neighbors: Neighbors) -> Neighbors:
    """Return the graph with the bridges that join its components.

    A graph that has them already is returned as it is.
    """
    if neighbors.bridges is not None:
        return neighbors
    bridges = find_bridges(
        X,
        [(0, neighbors.index)],
        metric=neighbors.metric,
        approximate=neighbors.info.get("method") == "approx",
    )
    return replace(neighbors, bridges=bridges)


def find_bridges(
    X: Matrix, lists: Iterable[tuple[int, AnyArray]], *, metric: str, approximate: bool
) -> Bridges:
    """Return the bridges of a graph, the shortest first.

    The `lists` come by blocks, as the number of the first sample and the neighbors of each, −1 for
    none. "cosine" joins only samples of positive cosine. If `approximate`, some samples of a
    component may ask for all of them. X is not read where there are no bridges.
    """
    n = X.shape[0]
    parent = np.arange(n)
    for first, index in lists:
        kernels.unite_neighbors(parent, first, index)
    kernels.flatten(parent)
    n_components = int(np.count_nonzero(parent == np.arange(n)))
    largest = int(np.bincount(parent).argmax())
    asking = np.flatnonzero(parent != largest)
    pairs: list[tuple[float, int, int]] = []
    if len(asking):
        if approximate:
            asking = _evenly_spaced(
                asking,
                parent,
                n * EXACT_BELOW.value / (2 * predict(X.shape[0], X.stats.nnz).seconds),
            )
        pairs = _join(X, parent, largest, asking, metric == "cosine")
    keys = np.array([key for key, _, _ in pairs])
    samples = np.array([pair for _, *pair in pairs], dtype=np.int32).reshape(-1, 2)
    return Bridges(samples, keys if metric == "cosine" else np.sqrt(keys), n_components)


def _join(
    X: Matrix, parent: IntArray, largest: int, asking: IntArray, cosine: bool
) -> list[tuple[float, int, int]]:
    """Join the components and return the pairs of samples that do, with their keys, by key.
    `largest` is a sample of the component that never asks."""
    blocks = row_blocks(X, block_size(X.shape[0], 24, predict(X.shape[0], X.stats.nnz)))
    key, nearest = np.full(len(asking), -np.inf), asking.copy()  # itself: to be searched
    pairs = []
    while len(asking):
        keep = parent[asking] != parent[largest]
        asking, key, nearest = asking[keep], key[keep], nearest[keep]
        groups = parent[asking]
        outside = parent[nearest] != groups
        search = np.flatnonzero(~outside & (key <= _least(key, outside, groups)))
        key[search], nearest[search] = _nearest_outside(X, blocks, asking[search], parent, cosine)
        keep = nearest >= 0  # the others have no sample outside at any distance
        asking, key, nearest, groups = asking[keep], key[keep], nearest[keep], groups[keep]
        outside = np.flatnonzero(parent[nearest] != groups)
        low, high = np.minimum(asking, nearest)[outside], np.maximum(asking, nearest)[outside]
        order = np.lexsort((high, low, key[outside], groups[outside]))
        _, firsts = np.unique(groups[outside][order], return_index=True)
        for place in order[firsts]:
            if kernels.unite(parent, low[place], high[place]):
                pairs.append((float(key[outside][place]), int(low[place]), int(high[place])))
        kernels.flatten(parent)
    return sorted(pairs)


def _least(key: AnyArray, outside: BoolArray, groups: IntArray) -> AnyArray:
    """Return the least key to a sample outside that is known in the component of each sample."""
    _, number = np.unique(groups, return_inverse=True)
    least = np.full(number.max(initial=-1) + 1, np.inf)
    np.minimum.at(least, number[outside], key[outside])
    return least[number]


def _evenly_spaced(asking: IntArray, parent: IntArray, most: float) -> IntArray:
    """Return about `most` of the samples, evenly spaced in each component and one at least."""
    share = most / len(asking)
    if share >= 1:
        return asking
    _, number, sizes = np.unique(parent[asking], return_inverse=True, return_counts=True)
    order = np.argsort(number, kind="stable")
    rank = np.arange(len(asking)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = (rank == 0) | (np.floor((rank + 1) * share) > np.floor(rank * share))
    return np.sort(asking[order[taken]])


def _nearest_outside(
    X: Matrix, blocks: list[RowBlock], rows: IntArray, parent: IntArray, cosine: bool
) -> tuple[AnyArray, IntArray]:
    """Return the key and the number of the nearest sample in another component, or −1."""
    lists = []
    by_block = [parent[block.start : block.stop] for block in blocks]
    size = blocks[0].stop - blocks[0].start
    for part in np.split(rows, range(size, len(rows), size)):
        found: NeighborLists = engine.reduce_tiles(
            _search,
            blocks,
            gather(X, blocks, part),
            parent[part],
            cosine,
            each=[by_block],
            combine=partial(exact.merge, k=1),
            local=X.local,
            label="bridges",
        )
        X.passes += 1
        lists.append(found)
    key, nearest = (np.concatenate(arrays)[:, 0] for arrays in zip(*lists, strict=True))
    return key, np.where(nearest == exact.NO_NEIGHBOR, -1, nearest).astype(np.int64)


# --- tasks --------------------------------------------------------------------------------------


def _search(
    block: RowBlock, groups: IntArray, asking: AnyArray, groups_of_asking: IntArray, cosine: bool
) -> NeighborLists:
    A, B = exact.kernel_block(asking, 0), block.load_kernel()
    state = exact.search_state(A, exact.empty_lists(len(groups_of_asking), 1), cosine)
    exact.scan(A, B, state, exact.rejecting_state(B, cosine), cosine, (groups_of_asking, groups))
    return state.lists
