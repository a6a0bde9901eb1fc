"""Approximate neighbours: candidates by sketches of the rows, compared exactly.

A sketch has a row's values in eight bits. Only the columns of a screen, those that are worth their
cost, are multiplied for all pairs of rows: of text, a term in a large share of the rows costs the
square of their number and says little. A pair passes the screen if its product there is among the
highest that either of its rows has, which a sample of the rows says beforehand; only what passes is
completed by the other columns, and only a row's few best of these, its candidates, are compared
exactly.

How many columns and how many pairs it takes comes from the recall asked for: of some rows of the
sample the exact neighbours are found, which says what each screen would have kept, and the cheapest
that keeps enough is taken.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph import sketch
from bigfs.graph.cost import Cost, products, sketch_cost, sketch_costs
from bigfs.graph.kernels import exact as exact_kernels
from bigfs.graph.kernels.exact import TINY
from bigfs.graph.row_blocks import Rows
from bigfs.graph.sample import Sample, measured
from bigfs.graph.schedule import tournament
from bigfs.graph.sketch import Best, Sketch
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

# of the cost of all columns in eight bits: screens to choose from
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)
# pairs for each candidate that pass a screen: to choose from
PASSING = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


class RecallMissed(ValueError):
    """The candidates do not hold the share of the neighbours asked for, or cost as much as an exact
    graph.
    """


@dataclass(frozen=True)
class Rule:
    """Which pairs make candidates, and what a sample says of it."""

    share: float  # of the cost of all columns: the screen has those that come in within it
    columns: int  # so many
    alike: float  # the cosine that neighbours have over the other columns, about
    # a pair passes if its product is above that of one of its rows with all but so many of the
    # sampled rows
    rank: int
    passing: int  # pairs a row that pass, about
    candidates: int
    recall: float  # of the measured rows' second half
    recall_sample: int  # its rows
    recall_asked: float
    products_kept: float  # share of the exact graph's multiply-adds, in eight bits
    seconds: float  # predicted, of one core

    def require_gain(self, exact: Cost) -> None:
        """Raise `RecallMissed` where the exact graph is predicted to be as quick."""
        if self.seconds >= exact.seconds:
            raise RecallMissed(
                f"the approximate graph is predicted to take {self.seconds:.0f} s with the "
                f"{self.columns} columns that its recall needs"
            )

    def info(self) -> dict[str, Any]:
        return asdict(self)


def rule_for(
    X: Matrix,
    rows: list[Rows],
    sample: Sample,
    k: int,
    metric: str,
    *,
    recall: float,
    candidates: int,
) -> Rule:
    """The cheapest screen whose candidates hold the share `recall` of the sample's neighbours, by a
    standard error more.

    Raises
    ------
    ValueError : for a recall outside (0, 1] or fewer candidates than neighbours.
    RecallMissed : if no screen does.
    """
    if not 0 < recall <= 1 or candidates < k:
        raise ValueError(
            f"recall must be in (0, 1] and candidates at least k={k}; got "
            f"recall={recall}, candidates={candidates}"
        )
    n, counts, shares = X.shape[0], X.stats.nnz.astype(np.float64), column_shares(X)
    ranks = [max(round(p * candidates * len(sample.numbers) / n), 1) for p in PASSING]
    known = measured(X, rows, sample, k, candidates, ranks[-1], metric == "cosine")
    best, reached, half = None, 0.0, len(known.true) // 2
    for share in SHARES:
        screen = shares <= share
        if best is not None and sketch_cost(counts, screen, n, 0, candidates)[1] >= best.seconds:
            break  # so are those that follow
        alike, held, passing = known.by(screen, ranks)
        reached = max(reached, held[:, :half].sum(axis=1).max() / max(known.true[:half].sum(), 1))
        for r, rank in enumerate(ranks):
            kept, seconds = sketch_cost(counts, screen, n, passing[r], candidates)
            if _enough(held[r, :half], known.true[:half], recall) and (
                best is None or seconds < best.seconds
            ):
                best = Rule(
                    share=share,
                    columns=int((screen & (counts > 0)).sum()),
                    alike=alike,
                    rank=rank,
                    passing=round(passing[r]),
                    candidates=candidates,
                    recall=float(held[r, half:].sum() / max(known.true[half:].sum(), 1)),
                    recall_sample=len(known.true) - half,
                    recall_asked=recall,
                    products_kept=float(kept / max(products(counts), 1)),
                    seconds=seconds,
                )
    if best is None:
        raise RecallMissed(
            f"{candidates} candidates find {reached:.2%} of the neighbours, "
            f"but recall is {recall:.2%}: "
            "lower the recall, raise candidates, or compute the exact graph"
        )
    return best


def _enough(held: AnyArray, true: AnyArray, recall: float) -> bool:
    """Whether what is held, by row, is more than was asked for, of all rows together and by a
    standard error.
    """
    more = held - recall * true
    return bool(more.sum() >= np.sqrt(len(more)) * more.std())


def column_shares(X: Matrix) -> AnyArray:
    """(d,): the share of the cost of all columns at which each comes in, the one with the most
    worth for its cost first.

    The cost of a column is its multiply-adds. Its worth is (Σx²)²: about the variance, over random
    pairs, of what a product misses without it.
    """
    cost = sketch_costs(X.stats.nnz.astype(np.float64), X.shape[0])
    worth = np.divide(X.stats.sums_of_squares**2, cost, out=np.zeros_like(cost), where=cost > 0)
    order = np.argsort(
        -(worth / max(worth.max(initial=0), TINY)).astype(np.float32), kind="stable"
    )  # the last bits of Σx² depend on the tiles
    shares = np.empty_like(cost)
    # with all of the cost all come in
    shares[order] = np.cumsum(cost[order]) / max(cost.sum(), 1) - 1e-9
    return shares


# --- the candidates -----------------------------------------------------------------------------


def candidates_of(
    X: Matrix, rows: list[Rows], sample: Sample, rule: Rule, cosine: bool
) -> tuple[list[Any], list[Any]]:
    """The blocks' candidates (`sketch.Best`), and every task on the way; not run."""
    place = engine.shared_operand(sketch.beside(column_shares(X) <= rule.share))
    operands = rule, place, cosine, uuid4().hex
    lists = engine.lazy_tiles(_inside, rows, sample.rows, sample.numbers, *operands, local=X.local)
    return tournament(X, rows, lists, _meet, *operands)


def _inside(
    rows: Rows,
    sampled: sp.csr_array,
    numbers: AnyArray,
    rule: Rule,
    place: AnyArray,
    cosine: bool,
    search: str,
) -> Best:
    own, sample = (
        _sketched(rows, place, rule.alike, search),
        sketch.sketch(exact_kernels.side(sampled, 0), place, rule.alike),
    )
    asked, _ = sketch.asked(
        own, np.arange(rows.start, rows.stop), sample, numbers, [rule.rank], cosine
    )
    return sketch.inside(own, asked[:, 0], rule.candidates, cosine)


def _meet(
    pair: tuple[Rows, Rows],
    of_a: Best,
    of_b: Best,
    rule: Rule,
    place: AnyArray,
    cosine: bool,
    search: str,
) -> tuple[Best, Best]:
    A, B = (_sketched(rows, place, rule.alike, search) for rows in pair)
    return sketch.meet(A, B, of_a, of_b, cosine)


def _sketched(rows: Rows, place: AnyArray, alike: float, search: str) -> Sketch:
    """A block's sketch, kept for the rest of its search while there is room; its rows don't take it
    away.
    """

    def make() -> Sketch:
        pieces = rows.pieces(keep=False)
        return sketch.joined(
            [
                sketch.sketch(exact_kernels.side(piece, start), place, alike)
                for start, piece in pieces
            ]
        )

    return engine.get_cached((search, rows.start), make)
