"""Approximate neighbors: candidates from sketches of the rows in eight bits, compared exactly.

Only the columns of a screen, those that are worth their cost, are multiplied for all pairs of rows.
In text, a term that occurs in a large share of the rows costs the square of their number and says
little. A pair passes if its product over the screen reaches the threshold of either row, which
comes from a random sample of rows. For passing pairs the other columns are added. The best few per
row, its candidates, are then compared exactly.

The exact neighbors of some sampled rows show what each screen would find, and the cheapest screen
that finds the required recall is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.approximate import sketch
from bigfs.graph.approximate.cost import approximate_cost, column_costs, multiply_adds
from bigfs.graph.approximate.sample import Sample, measure_neighbors
from bigfs.graph.kernels import exact as exact_kernels
from bigfs.graph.kernels.exact import TINY
from bigfs.graph.kernels.sketch import CandidateLists, Sketch
from bigfs.graph.row_blocks import RowBlock, Step
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.matrix import Matrix

# Screens to choose from, as shares of the cost of all columns in eight bits.
SCREEN_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)
# Numbers of passing pairs per candidate to choose from.
PASSING_PER_CANDIDATE = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


class RecallError(ValueError):
    """The candidates miss the required recall, or finding them costs as much as the exact graph."""


@dataclass(frozen=True)
class ScreenPlan:
    """The screen, the pairs that pass it, and what the sample says about them."""

    share: float  # the screened columns cost at most this share of all columns
    columns: int  # number of screened columns with non-zeros
    residual_cosine: float  # cosine that neighbors are expected to have over the other columns
    # a pair passes if its screened score is at least the rank-th largest that either of its rows
    # has with the sampled rows
    rank: int
    n_passing: int  # estimated number of passing pairs per row
    candidates: int  # candidates per row
    recall: float  # estimated from the second half of the measured rows
    recall_sample: int  # number of these rows
    recall_asked: float
    products_kept: float  # multiply-adds in eight bits, as a share of the exact graph's
    seconds: float  # predicted, on one core


def choose_screen(
    X: Matrix,
    blocks: list[RowBlock],
    sample: Sample,
    k: int,
    metric: str,
    *,
    recall: float,
    candidates: int,
) -> ScreenPlan:
    """Return the cheapest screen that reaches the recall on the sample by a standard error more."""
    if not 0 < recall <= 1 or candidates < k:
        raise ValueError(
            f"recall must be in (0, 1] and candidates at least k={k}; got "
            f"recall={recall}, candidates={candidates}"
        )
    n = X.shape[0]
    counts = X.stats.nnz.astype(np.float64)
    shares = column_shares(X)
    ranks = [max(round(p * candidates * len(sample.numbers) / n), 1) for p in PASSING_PER_CANDIDATE]
    measured = measure_neighbors(X, blocks, sample, k, candidates, ranks[-1], metric == "cosine")
    n_true = measured.n_true
    half = len(n_true) // 2  # the first half chooses the screen
    best: ScreenPlan | None = None
    best_recall = 0.0
    for share in SCREEN_SHARES:
        screen = shares <= share
        if best is not None and (
            approximate_cost(counts, screen, n, 0, candidates)[1] >= best.seconds
        ):
            break  # the larger screens cost more
        residual_cosine, n_found, n_passing = measured.estimate(screen, ranks)
        reached = n_found[:, :half].sum(axis=1).max() / max(n_true[:half].sum(), 1)
        best_recall = max(best_recall, reached)
        for r, rank in enumerate(ranks):
            products, seconds = approximate_cost(counts, screen, n, n_passing[r], candidates)
            surplus = n_found[r, :half] - recall * n_true[:half]
            suffices = surplus.sum() >= np.sqrt(half) * surplus.std()  # by a standard error
            if suffices and (best is None or seconds < best.seconds):
                best = ScreenPlan(
                    share=share,
                    columns=int((screen & (counts > 0)).sum()),
                    residual_cosine=residual_cosine,
                    rank=rank,
                    n_passing=round(n_passing[r]),
                    candidates=candidates,
                    recall=float(n_found[r, half:].sum() / max(n_true[half:].sum(), 1)),
                    recall_sample=len(n_true) - half,
                    recall_asked=recall,
                    products_kept=float(products / max(multiply_adds(counts), 1)),
                    seconds=seconds,
                )
    if best is None:
        raise RecallError(
            f"{candidates} candidates find {best_recall:.2%} of the neighbors, "
            f"but recall is {recall:.2%}: "
            "lower the recall, raise candidates, or compute the exact graph"
        )
    return best


def column_shares(X: Matrix) -> AnyArray:
    """Return the share of the cost of all columns at which each column enters the screen, (d,)."""
    cost = column_costs(X.stats.nnz.astype(np.float64), X.shape[0])
    worth = np.divide(X.stats.sums_of_squares**2, cost, out=np.zeros_like(cost), where=cost > 0)
    # in single precision, because the last bits of Σx² depend on the tiles
    relative = (worth / max(worth.max(initial=0), TINY)).astype(np.float32)
    order = np.argsort(-relative, kind="stable")
    shares = np.empty_like(cost)
    # the last share must not exceed 1 by rounding
    shares[order] = np.cumsum(cost[order]) / max(cost.sum(), 1) - 1e-9
    return shares


# --- the candidates -----------------------------------------------------------------------------


def candidate_steps(X: Matrix, sample: Sample, plan: ScreenPlan, cosine: bool) -> tuple[Step, Step]:
    """Return the steps that make the `CandidateLists` of each block and of each pair of blocks."""
    unscreened = sketch.unscreened_index(column_shares(X) <= plan.share)
    search_id = uuid4().hex
    operands = plan, unscreened, cosine, search_id
    within = Step(_within_block, (sample.rows, sample.numbers, *operands))
    return within, Step(_compare, operands)


def _within_block(
    block: RowBlock,
    sampled_rows: sp.csr_array,
    sample_numbers: AnyArray,
    plan: ScreenPlan,
    unscreened: AnyArray,
    cosine: bool,
    search_id: str,
) -> CandidateLists:
    A = _sketch_of(block, unscreened, plan.residual_cosine, search_id)
    sample = sketch.sketch_rows(
        exact_kernels.kernel_block(sampled_rows, 0), unscreened, plan.residual_cosine
    )
    numbers = np.arange(block.start, block.stop)
    thresholds, _ = sketch.sample_thresholds(
        A, numbers, sample, sample_numbers, [plan.rank], cosine
    )
    return sketch.within_block(A, thresholds[:, 0], plan.candidates, cosine)


def _compare(
    pair: tuple[RowBlock, RowBlock],
    lists_a: CandidateLists,
    lists_b: CandidateLists,
    plan: ScreenPlan,
    unscreened: AnyArray,
    cosine: bool,
    search_id: str,
) -> tuple[CandidateLists, CandidateLists]:
    A, B = (_sketch_of(block, unscreened, plan.residual_cosine, search_id) for block in pair)
    return sketch.between_blocks(A, B, lists_a, lists_b, cosine)


def _sketch_of(
    block: RowBlock, unscreened: AnyArray, residual_cosine: float, search_id: str
) -> Sketch:
    """Return the sketch of a block, cached for the rest of its search while there is room.

    The rows that it is made of are not cached, so they do not take that room.
    """

    def make() -> Sketch:
        pieces = block.pieces(cache=False)
        return sketch.concatenate(
            [
                sketch.sketch_rows(
                    exact_kernels.kernel_block(rows, first), unscreened, residual_cosine
                )
                for first, rows in pieces
            ]
        )

    return engine.get_cached((search_id, block.start), make)
