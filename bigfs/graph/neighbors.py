"""The k nearest neighbors of every row, from pairs of row blocks.

    cosine      1 − xᵢ·xⱼ / (‖xᵢ‖‖xⱼ‖)
    euclidean   ‖xᵢ − xⱼ‖ = √(‖xᵢ‖² + ‖xⱼ‖² − 2 xᵢ·xⱼ)

The rows are cut into blocks that are sized from the memory limit. Each block is searched by itself,
and then all pairs of blocks are compared in rounds. A pair is one task, whose products serve the
lists of both blocks. The order of a list (distance, then index) is total, so the result depends
neither on the blocks nor on the rounds. "approx" runs the same rounds on sketches of the rows
(`bigfs.graph.approximate.search`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import asdict
from functools import cache
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.approximate import sketch
from bigfs.graph.approximate.cost import choose_method, predict
from bigfs.graph.approximate.sample import draw_sample
from bigfs.graph.approximate.search import RecallError, candidate_steps, choose_screen
from bigfs.graph.edges import Metric, Neighbors
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import NeighborLists
from bigfs.graph.kernels.sketch import CandidateLists
from bigfs.graph.row_blocks import (
    RowBlock,
    Step,
    block_size,
    compare_pairs,
    require_whole,
    row_blocks,
)
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

Method = Literal["exact", "approx", "auto"]
# Called as sink(start, stop, index, distance) with finished rows.
Sink = Callable[[int, int, AnyArray, AnyArray], Any]


def knn(X: Matrix, k: int = 10, *, metric: Metric = "cosine", **options: Any) -> Neighbors:
    """Find the k nearest other rows of each row of X in memory, with options of `stream_knn`."""
    engine.require_memory(
        X.shape[0] * k * 13 * 2,
        f"a graph of {X.shape[0]} × {k} neighbors in memory (a store needs less)",
    )
    parts, info = stream_knn(X, k, _collect, metric=metric, **options)
    index, distance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Neighbors(index, distance, metric, info)


@engine.session()
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
    """Find the k nearest other rows of every row of X, and hand them on by blocks of rows.

    ``sink(start, stop, index, distance)`` gets each block of finished rows in the process that
    computed it, so it must pickle. `start` is a multiple of `row_alignment` unless `block_rows`
    says otherwise. If a worker dies, a block may be handed over twice, with the same bits. Return
    what the sink returned, in the order of the rows, and the `info` of `Neighbors`.

    X has the layout by rows. "cosine" finds only rows of positive cosine, and −1 in place of
    others. "approx" finds `candidates` (3k/2, because eight bits err little) by sketches of the
    rows, with a share `recall` of the true neighbors. "auto" takes "exact" while its predicted cost
    is below ten minutes on one core. The rows of a block (`block_rows`, or by the memory limit) do
    not change the result.
    """
    n = X.shape[0]
    if not 1 <= k < n:
        raise ValueError(f"k must be between 1 and {n - 1} for {n} samples; got {k}")
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f'metric must be "cosine" or "euclidean"; got {metric!r}')
    if method not in ("exact", "approx", "auto"):
        raise ValueError(f'method must be "exact", "approx" or "auto"; got {method!r}')
    cost = predict(n, X.stats.nnz)
    if candidates is None:
        candidates = k + k // 2
    info: dict[str, Any] = {"k": k, "metric": metric, "predicted": cost._asdict()}
    chosen, why = (method, "requested") if method != "auto" else choose_method(cost)
    if chosen == "approx":
        require_whole(X, "the approximate neighbors")
        if engine.client() is not None and not X.local:
            _fill_kernel_cache(X.shape[1] > sketch.MAX_NARROW_COLUMNS)
        blocks = row_blocks(X, block_rows or block_size(n, 8 * candidates, cost))
        try:
            sample = draw_sample(X, blocks, k)
            plan = choose_screen(X, blocks, sample, k, metric, recall=recall, candidates=candidates)
            if method == "auto" and plan.seconds >= cost.seconds:
                raise RecallError(
                    f"the approximate graph is predicted to take {plan.seconds:.0f} s with the "
                    f"{plan.columns} columns that its recall needs"
                )
        except RecallError as error:
            if method == "approx":
                raise
            chosen, why = "exact", f"{why}, but {error}"
        else:
            within, compare = candidate_steps(X, sample, plan, metric == "cosine")
            finish = Step(_rerank, (blocks, k, metric, sink))
            results = compare_pairs(X, blocks, within, compare, finish, "neighbors")
            X.passes += len(blocks)
            return results, info | {"method": chosen, "why": why} | asdict(plan)
    blocks = row_blocks(X, block_rows or block_size(n, 24 * k, cost))
    operands = k, metric == "cosine"
    results = compare_pairs(
        *(X, blocks, Step(_within_block, operands), Step(_compare, operands)),
        *(Step(_finish, (metric, sink)), "neighbors"),
    )
    return results, info | {"method": chosen, "why": why}


@cache
def _fill_kernel_cache(wide: bool) -> None:
    """Compile the kernels into numba's cache on disk, because compiling takes a worker 120 MB."""
    rows = sp.csr_array(np.random.default_rng(0).random((40, 8), dtype=np.float32))
    rows.resize(40, 2 * sketch.MAX_NARROW_COLUMNS if wide else 8)
    # an empty context shows no progress
    Context().run(knn, Matrix.from_array(rows), 3, method="approx", recall=0.1)


# --- tasks --------------------------------------------------------------------------------------


def _within_block(block: RowBlock, k: int, cosine: bool) -> NeighborLists:
    return exact.within_block(block.load_kernel(), k, cosine)


def _compare(
    pair: tuple[RowBlock, RowBlock],
    lists_a: NeighborLists,
    lists_b: NeighborLists,
    _: int,
    cosine: bool,
) -> tuple[NeighborLists, NeighborLists]:
    A, B = (block.load_kernel() for block in pair)
    return exact.between_blocks(A, B, lists_a, lists_b, cosine)


def _rerank(
    block: RowBlock,
    candidates: CandidateLists,
    all_blocks: list[RowBlock],
    k: int,
    metric: Metric,
    sink: Sink,
) -> Any:
    """Compare the candidates of a block over all columns, block by block."""
    A = block.load_kernel()
    lists = exact.empty_lists(block.stop - block.start, k)
    index = np.sort(sketch.candidate_rows(candidates.codes), axis=1)
    for other in all_blocks:
        B = other.load_kernel()
        exact.rerank(A, index, B, lists, metric == "cosine")
    return _finish(block, lists, metric, sink)


def _finish(block: RowBlock, lists: NeighborLists, metric: Metric, sink: Sink) -> Any:
    index = np.where(lists.neighbor == exact.NO_NEIGHBOR, -1, lists.neighbor)
    distance = lists.key if metric == "cosine" else np.sqrt(lists.key)
    return sink(block.start, block.stop, index, distance)


def _collect(
    start: int, stop: int, index: AnyArray, distance: AnyArray
) -> tuple[AnyArray, AnyArray]:
    return index, distance
