"""The k nearest neighbours of every row, exact, a pair of row blocks at a time.

    cosine      1 − xᵢ·xⱼ / (‖xᵢ‖‖xⱼ‖)
    euclidean   ‖xᵢ − xⱼ‖ = √(‖xᵢ‖² + ‖xⱼ‖² − 2 xᵢ·xⱼ)

The rows are cut into blocks sized from the memory limit. Each is searched by itself; then two blocks are one
task, whose products serve the lists of both, and which looks only at what is nearer than they have found.
A row's lists from all blocks are merged; the order (distance, then index) is total, so neither the blocks nor the
order of merging show in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import dask
import numpy as np

from bigfs import blocks
from bigfs.graph import kernel
from bigfs.graph.approx import NoRareTerms, rare_terms, search
from bigfs.graph.cost import choose, predict
from bigfs.graph.kernel import Lists
from bigfs.graph.rows import Pair, Rows, cut, of_one, of_pairs
from bigfs.matrix import Array, Matrix

Metric = Literal["cosine", "euclidean"]
Method = Literal["exact", "approx", "auto"]
Sink = Callable[[int, int, Array, Array], Any]  # start, stop, index, distance: of finished rows

FAN = 4  # lists of the same rows merged at once; more would hold more of them


@dataclass(frozen=True)
class Neighbours:
    """The k nearest neighbours of n samples, nearest first; equal distances by lower index.

    Attributes
    ----------
    index : (n, k) int32, −1 where a sample has fewer than k (cosine: rows that share nothing).
    distance : (n, k) float64: 1 − cosine, or the Euclidean distance; inf where there is none.
    metric : "cosine" or "euclidean".
    info : how it was found and why so: `method`, `why`, `predicted` cost; approximate: `recall` and its sample.
    """

    index: Array
    distance: Array
    metric: str
    info: dict[str, Any] = field(default_factory=dict)


def knn(
    X: Matrix,
    k: int = 10,
    *,
    metric: Metric = "cosine",
    method: Method = "exact",
    recall: float = 0.95,
    candidates: int = 50,
    block_rows: int | None = None,
) -> Neighbours:
    """The k nearest other rows of every row of X, in memory (n × k × 12 bytes).

    Parameters
    ----------
    X : n × d, with its layout by rows.
    metric : "cosine" finds rows of positive cosine only: a row that shares no term with another is
        isolated, and gets index −1. "euclidean" finds k for every row. No row is its own neighbour.
    method : "exact"; "approx" (text: candidates by their rare terms, see `approx.py`); "auto" takes
        the exact one while its predicted cost is below ten minutes of one core, and says why in `info`.
    recall, candidates : of "approx": the share of true neighbours to find, which decides how
        frequent a term may be; and how many candidates a row are compared exactly.
    block_rows : rows of a block; default: sized from the memory limit. Not seen in the result.

    Raises
    ------
    ValueError : k outside 1 … n − 1, an unknown metric or method, a matrix without rows, a recall
        that the candidates do not reach.
    NotEnoughMemory : if the blocks, or the n × k result, do not fit.
    """
    blocks.require_memory(X.shape[0] * k * 12 * 2, f"a graph of {X.shape[0]} × {k} in memory; stream it to a store instead")
    parts, info = stream_knn(X, k, _keep, metric=metric, method=method, recall=recall, candidates=candidates, block_rows=block_rows)
    index, distance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Neighbours(index, distance, metric, info)


def stream_knn(
    X: Matrix,
    k: int,
    sink: Sink,
    *,
    metric: Metric = "cosine",
    method: Method = "exact",
    recall: float = 0.95,
    candidates: int = 50,
    block_rows: int | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """`knn`, each block of finished rows handed to `sink(start, stop, index, distance)` where it was computed.

    The sink travels to the workers, so it must pickle. A block starts at a multiple of 4096 rows
    (unless `block_rows` says otherwise), and may be handed over twice, with the same bits, when a worker dies.

    Returns
    -------
    What the sink returned, in row order, and `Neighbours.info`.
    """
    _check(X, k, metric, method)
    cost = predict(X)
    info: dict[str, Any] = {"k": k, "metric": metric, "predicted": cost._asdict()}
    way, why = (method, "asked for") if method != "auto" else choose(cost)
    n = X.shape[0]
    if way == "approx":
        others = cut(X, block_rows or of_pairs(n, candidates, cost))
        try:
            rule = rare_terms(X, others, k, metric, recall=recall, candidates=candidates)
            if method == "auto":
                rule.require_gain(cost)
        except NoRareTerms as error:
            if method == "approx":
                raise
            way, why = "exact", f"{why}; but {error}"
        else:
            own = cut(X, block_rows or of_one(n, candidates, cost))
            done = search(X, own, others, k, metric, rule, partial(_finish, metric=metric, sink=sink))
            return done, info | {"method": way, "why": why} | rule.info()
    rows = cut(X, block_rows or of_pairs(n, k, cost))
    return exact(X, rows, k, metric, sink), info | {"method": way, "why": why}


def exact(X: Matrix, rows: list[Rows], k: int, metric: Metric, sink: Sink) -> list[Any]:
    """Each block by itself, then every pair of blocks, then each block's lists merged and handed to the sink."""
    cosine = metric == "cosine"
    own = blocks.lazy_tiles(_inside, rows, k, cosine, local=X.local)
    a, b = np.triu_indices(len(rows), 1)
    pairs = [Pair(rows[i], rows[j]) for i, j in zip(a, b, strict=True)]
    both: list[Any] = blocks.lazy_tiles(_pair, pairs, cosine, each=[[own[i] for i in a], [own[j] for j in b]], local=X.local)
    lists = [[near] for near in own]
    for i, j, found in zip(a, b, both, strict=True):
        lists[i].append(found[0])
        lists[j].append(found[1])
    done = blocks.map_tiles(_merged, rows, k, metric, sink, each=[[_few(parts, k) for parts in lists]], local=X.local, label="neighbours")
    X.passes += len(rows)  # b blocks, each loaded for b pairs
    return done


def _few(parts: list[Any], k: int) -> list[Any]:
    """Lists of the same rows, merged `FAN` at a time until no more than that are left."""
    while len(parts) > FAN:
        parts = [dask.delayed(kernel.merge, pure=False)(parts[p : p + FAN], k) for p in range(0, len(parts), FAN)]
    return parts


# --- tasks --------------------------------------------------------------------------------------


def _inside(rows: Rows, k: int, cosine: bool) -> Lists:
    return kernel.inside(kernel.side(rows.load(), rows.start), k, cosine)


def _pair(pair: Pair, of_a: Lists, of_b: Lists, cosine: bool) -> tuple[Lists, Lists]:
    """Told what the blocks found by themselves, so that only what is nearer is looked at."""
    A, B = (kernel.side(rows.load(), rows.start) for rows in (pair.a, pair.b))
    return kernel.between(A, B, of_a, of_b, cosine)


def _merged(rows: Rows, parts: Sequence[Lists], k: int, metric: Metric, sink: Sink) -> Any:
    return _finish(rows, kernel.merge(list(parts), k), metric, sink)


def _finish(rows: Rows, lists: Lists, metric: Metric, sink: Sink) -> Any:
    index = np.where(lists.found == kernel.NONE, -1, lists.found)
    return sink(rows.start, rows.stop, index, lists.key if metric == "cosine" else np.sqrt(lists.key))


def _keep(start: int, stop: int, index: Array, distance: Array) -> tuple[Array, Array]:
    return index, distance


def _check(X: Matrix, k: int, metric: str, method: str) -> None:
    n = X.shape[0]
    if not 1 <= k < n:
        raise ValueError(f"k={k} neighbours of {n} samples: k must be between 1 and {n - 1}")
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f'metric must be "cosine" or "euclidean"; got {metric!r}')
    if method not in ("exact", "approx", "auto"):
        raise ValueError(f'method must be "exact", "approx" or "auto"; got {method!r}')
