"""The k nearest neighbours of every row, a pair of row blocks at a time.

    cosine      1 − xᵢ·xⱼ / (‖xᵢ‖‖xⱼ‖)
    euclidean   ‖xᵢ − xⱼ‖ = √(‖xᵢ‖² + ‖xⱼ‖² − 2 xᵢ·xⱼ)

The rows are cut into blocks sized from the memory limit. Each is searched by itself; then the
blocks meet in rounds, as in a tournament: two blocks are one task, whose products serve the lists
of both, and which hands them on to the next. A list's order (distance, then index) is total, so
neither the blocks nor the rounds show in the result.

"approx" makes these rounds with sketches of the rows, for the candidates, and then compares those
exactly: `approx.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph import sketch
from bigfs.graph.approx import RecallMissed, Rule, candidates_of, rule_for
from bigfs.graph.cost import choose, predict
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import Lists
from bigfs.graph.row_blocks import Rows, block_size, cut
from bigfs.graph.sample import Sample, sample_of
from bigfs.graph.schedule import tournament
from bigfs.graph.sketch import Best
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

Metric = Literal["cosine", "euclidean"]
Method = Literal["exact", "approx", "auto"]
# start, stop, index, distance: of finished rows
Sink = Callable[[int, int, AnyArray, AnyArray], Any]


@dataclass(frozen=True)
class Neighbours:
    """The k nearest neighbours of n samples, nearest first; equal distances by lower index.

    Attributes
    ----------
    index : (n, k) int32, −1 where a sample has fewer than k (cosine: rows that share nothing).
    distance : (n, k) float64: 1 − cosine, or the Euclidean distance; inf where there is none.
    metric : "cosine" or "euclidean".
    info : how it was found and why so: `method`, `why`, `predicted` cost; approximate: `recall` and
        its sample.
    """

    index: AnyArray
    distance: AnyArray
    metric: str
    info: dict[str, Any] = field(default_factory=dict)


def knn(
    X: Matrix,
    k: int = 10,
    *,
    metric: Metric = "cosine",
    method: Method = "exact",
    recall: float = 0.95,
    candidates: int | None = None,
    block_rows: int | None = None,
) -> Neighbours:
    """The k nearest other rows of every row of X, in memory (n × k × 12 bytes).

    Parameters
    ----------
    X : n × d, with its layout by rows.
    metric : "cosine" finds rows of positive cosine only: a row that shares no term with another is
        isolated, and gets index −1. "euclidean" finds k for every row. No row is its own neighbour.
    method : "exact"; "approx" (candidates by sketches of the rows, see `approx.py`); "auto" takes
        the exact one while its predicted cost is below ten minutes of one core, and says why in
        `info`.
    recall, candidates : of "approx": the share of true neighbours to find, which decides what is
    left
        out; and how many candidates a row are compared exactly; default: half as many again as k,
        eight bits err little.
    block_rows : rows of a block; default: sized from the memory limit. Not seen in the result.

    Raises
    ------
    ValueError : k outside 1 … n − 1, an unknown metric or method, a matrix without rows, a recall
        that the candidates do not reach.
    NotEnoughMemory : if the blocks, or the n × k result, do not fit.
    """
    engine.require_memory(
        X.shape[0] * k * 12 * 2,
        f"a graph of {X.shape[0]} × {k} neighbours in memory (a store needs less)",
    )
    parts, info = stream_knn(
        X,
        k,
        _keep,
        metric=metric,
        method=method,
        recall=recall,
        candidates=candidates,
        block_rows=block_rows,
    )
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
    candidates: int | None = None,
    block_rows: int | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """`knn`, each block of finished rows handed to `sink(start, stop, index, distance)` where it
    was computed.

    The sink travels to the workers, so it must pickle. A block starts at a multiple of 4096 rows
    (unless `block_rows` says otherwise), and may be handed over twice, with the same bits, when a
    worker dies.

    Returns
    -------
    What the sink returned, in row order, and `Neighbours.info`.
    """
    _check(X, k, metric, method)
    cost, candidates = predict(X), k + k // 2 if candidates is None else candidates
    info: dict[str, Any] = {"k": k, "metric": metric, "predicted": cost._asdict()}
    way, why = (method, "requested") if method != "auto" else choose(cost)
    if way == "approx":
        if engine.client() is not None and not X.local:
            _compile(X.shape[1] > sketch.NARROW)
        rows = cut(X, block_rows or block_size(X.shape[0], 8 * candidates, cost))
        try:
            sample = sample_of(X, rows, k)
            rule = rule_for(X, rows, sample, k, metric, recall=recall, candidates=candidates)
            if method == "auto":
                rule.require_gain(cost)
        except RecallMissed as error:
            if method == "approx":
                raise
            way, why = "exact", f"{why}, but {error}"
        else:
            return _approximate(X, rows, sample, k, metric, rule, sink), info | {
                "method": way,
                "why": why,
            } | rule.info()
    rows = cut(X, block_rows or block_size(X.shape[0], 24 * k, cost))
    return _exact(X, rows, k, metric, sink), info | {"method": way, "why": why}


@cache
def _compile(wide: bool) -> None:
    """The kernels in numba's cache on disk, by a graph of a few rows: a worker that compiles keeps
    120 MB more than one that loads them.
    """
    rows = sp.csr_array(np.random.default_rng(0).random((40, 8), dtype=np.float32))
    rows.resize(40, 2 * sketch.NARROW if wide else 8)
    # nobody is shown its progress
    Context().run(knn, Matrix.from_array(rows), 3, method="approx", recall=0.1)


def _exact(X: Matrix, rows: list[Rows], k: int, metric: Metric, sink: Sink) -> list[Any]:
    operands = k, metric == "cosine"
    lists, steps = tournament(
        X, rows, engine.lazy_tiles(_inside, rows, *operands, local=X.local), _meet, *operands
    )
    return engine.map_tiles(
        _finish,
        rows,
        metric,
        sink,
        each=[lists],
        local=X.local,
        label="neighbours",
        progress_tasks=steps,
    )


def _approximate(
    X: Matrix, rows: list[Rows], sample: Sample, k: int, metric: Metric, rule: Rule, sink: Sink
) -> list[Any]:
    candidates, steps = candidates_of(X, rows, sample, rule, metric == "cosine")
    X.passes += len(rows)
    return engine.map_tiles(
        _compare,
        rows,
        rows,
        k,
        metric,
        sink,
        each=[candidates],
        local=X.local,
        label="neighbours",
        progress_tasks=steps,
    )


# --- tasks --------------------------------------------------------------------------------------


def _inside(rows: Rows, k: int, cosine: bool) -> Lists:
    return exact.inside(exact.side(rows.load(), rows.start), k, cosine)


def _meet(
    pair: tuple[Rows, Rows], of_a: Lists, of_b: Lists, _: int, cosine: bool
) -> tuple[Lists, Lists]:
    A, B = (exact.side(rows.load(), rows.start) for rows in pair)
    return exact.between(A, B, of_a, of_b, cosine)


def _compare(
    own: Rows, candidates: Best, others: list[Rows], k: int, metric: Metric, sink: Sink
) -> Any:
    """The candidates of a block compared by all their columns, block by block."""
    A, lists = exact.side(own.load(), own.start), exact.empty(own.stop - own.start, k)
    found = np.sort(sketch.found(candidates.codes), axis=1)
    for rows in others:
        exact.rerank(A, found, exact.side(rows.load(), rows.start), lists, metric == "cosine")
    return _finish(own, lists, metric, sink)


def _finish(rows: Rows, lists: Lists, metric: Metric, sink: Sink) -> Any:
    index = np.where(lists.found == exact.NONE, -1, lists.found)
    return sink(
        rows.start, rows.stop, index, lists.key if metric == "cosine" else np.sqrt(lists.key)
    )


def _keep(start: int, stop: int, index: AnyArray, distance: AnyArray) -> tuple[AnyArray, AnyArray]:
    return index, distance


def _check(X: Matrix, k: int, metric: str, method: str) -> None:
    n = X.shape[0]
    if not 1 <= k < n:
        raise ValueError(f"k must be between 1 and {n - 1} for {n} samples; got {k}")
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f'metric must be "cosine" or "euclidean"; got {metric!r}')
    if method not in ("exact", "approx", "auto"):
        raise ValueError(f'method must be "exact", "approx" or "auto"; got {method!r}')
