"""The k nearest neighbours of every row, a pair of row blocks at a time.

    cosine      1 − xᵢ·xⱼ / (‖xᵢ‖‖xⱼ‖)
    euclidean   ‖xᵢ − xⱼ‖ = √(‖xᵢ‖² + ‖xⱼ‖² − 2 xᵢ·xⱼ)

The rows are cut into blocks sized from the memory limit. Each is searched by itself; then the blocks meet in
rounds, as in a tournament: two blocks are one task, whose products serve the lists of both, and which hands them on
to the next. A list's order (distance, then index) is total, so neither the blocks nor the rounds show in the result.

"approx" makes these rounds with sketches of the rows, for the candidates, and then compares those exactly: `approx.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from bigfs import blocks
from bigfs.graph import kernel
from bigfs.graph.approx import RecallMissed, Rule, rule_for
from bigfs.graph.cost import choose, predict
from bigfs.graph.kernel import Lists, Side
from bigfs.graph.rows import Rows, block_size, cut
from bigfs.matrix import Array, Matrix

Metric = Literal["cosine", "euclidean"]
Method = Literal["exact", "approx", "auto"]
Sink = Callable[[int, int, Array, Array], Any]  # start, stop, index, distance: of finished rows


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
    candidates: int = 30,
    block_rows: int | None = None,
) -> Neighbours:
    """The k nearest other rows of every row of X, in memory (n × k × 12 bytes).

    Parameters
    ----------
    X : n × d, with its layout by rows.
    metric : "cosine" finds rows of positive cosine only: a row that shares no term with another is
        isolated, and gets index −1. "euclidean" finds k for every row. No row is its own neighbour.
    method : "exact"; "approx" (candidates by sketches of the rows, see `approx.py`); "auto" takes
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
    candidates: int = 30,
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
    if way == "approx":
        rows = cut(X, block_rows or block_size(X.shape[0], candidates, cost))
        try:
            rule = rule_for(X, rows, k, metric, recall=recall, candidates=candidates)
            if method == "auto":
                rule.require_gain(cost)
        except RecallMissed as error:
            if method == "approx":
                raise
            way, why = "exact", f"{why}; but {error}"
        else:
            return _approximate(X, rows, k, metric, rule, sink), info | {"method": way, "why": why} | rule.info()
    rows = cut(X, block_rows or block_size(X.shape[0], k, cost))
    return _exact(X, rows, k, metric, sink), info | {"method": way, "why": why}


def _exact(X: Matrix, rows: list[Rows], k: int, metric: Metric, sink: Sink) -> list[Any]:
    lists, steps = tournament(X, rows, k, metric)
    return blocks.map_tiles(_finish, rows, metric, sink, each=[lists], local=X.local, label="neighbours", after=steps)


def _approximate(X: Matrix, rows: list[Rows], k: int, metric: Metric, rule: Rule, sink: Sink) -> list[Any]:
    candidates, steps = tournament(X, rows, rule.candidates, metric, uuid4().hex, rule.kept(X))
    X.passes += len(rows)
    return blocks.map_tiles(_compare, rows, rows, k, metric, sink, each=[candidates], local=X.local, label="neighbours", after=steps)


def tournament(X: Matrix, rows: list[Rows], k: int, metric: Metric, *sketched: Any) -> tuple[list[Any], list[Any]]:
    """(the blocks' lists when each has met all others, and every task on the way), not run; `sketched`: as `_side` takes it."""
    lists: list[Any] = blocks.lazy_tiles(_inside, rows, k, metric, *sketched, local=X.local)
    steps = list(lists)
    for meetings in rounds(len(rows)):
        pairs = [(rows[i], rows[j]) for i, j in meetings]
        known = [[lists[i] for i, _ in meetings], [lists[j] for _, j in meetings]]
        met: list[Any] = blocks.lazy_tiles(_meet, pairs, metric, *sketched, each=known, local=X.local)
        steps += met
        for (i, j), both in zip(meetings, met, strict=True):
            lists[i], lists[j] = both[0], both[1]
    X.passes += len(rows)  # b blocks, each loaded for b meetings
    return lists, steps


def rounds(b: int) -> list[list[tuple[int, int]]]:
    """The b(b−1)/2 pairs i < j in rounds, in each of which everyone meets one other (with b odd, one rests)."""
    ring = list(range(b + b % 2))
    half, made = len(ring) // 2, []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        made.append([(min(pair), max(pair)) for pair in pairs if max(pair) < b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made


# --- tasks --------------------------------------------------------------------------------------


def _inside(rows: Rows, k: int, metric: Metric, *sketched: Any) -> Lists:
    return kernel.inside(_side(rows, *sketched), k, metric == "cosine")


def _meet(pair: tuple[Rows, Rows], of_a: Lists, of_b: Lists, metric: Metric, *sketched: Any) -> tuple[Lists, Lists]:
    A, B = (_side(rows, *sketched) for rows in pair)
    return kernel.between(A, B, of_a, of_b, metric == "cosine")


def _side(rows: Rows, search: str = "", columns: Array | None = None) -> Side:
    """The block itself or, in a search by sketches of some columns (mask), its sketch, kept while there is room."""
    if columns is None:
        return kernel.side(rows.load(), rows.start)
    return blocks.keep((search, rows.start), lambda: kernel.sketch(kernel.side(rows.load(), rows.start), columns))


def _compare(own: Rows, candidates: Lists, others: list[Rows], k: int, metric: Metric, sink: Sink) -> Any:
    """The candidates of a block compared by all their columns, block by block."""
    A, lists = kernel.side(own.load(), own.start), kernel.empty(own.stop - own.start, k)
    found = np.sort(candidates.found, axis=1)
    for rows in others:
        kernel.rerank(A, found, kernel.side(rows.load(), rows.start), lists, metric == "cosine")
    return _finish(own, lists, metric, sink)


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
