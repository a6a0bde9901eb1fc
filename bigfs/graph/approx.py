"""Approximate neighbours: candidates by sketches of the rows, compared exactly.

A sketch has a row's values in eight bits, and only the columns that are worth their cost: of text, a term in a large
share of the rows costs the square of their number and says little. The candidates of a row are the few dozen others
with the largest product of sketches (over the full norms), and only they are compared by all columns. How many columns
it takes comes from the recall asked for: a sample of rows, whose exact neighbours are known, says what each share of
the cost would have kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from bigfs import blocks
from bigfs.graph import kernel, sketch
from bigfs.graph.cost import Cost, products, sketch_costs, sketch_seconds
from bigfs.graph.kernel import Lists
from bigfs.graph.rows import Rows
from bigfs.graph.sketch import Sketch
from bigfs.graph.tournament import tournament
from bigfs.matrix import Array, Matrix

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0)  # of the cost of all columns in eight bits
SAMPLE = 1024  # rows; the first half chooses the share, the second measures the recall
SEED = 0
LATER = np.iinfo(np.int32).max  # the number of a sampled row beyond all blocks: it is nobody's itself


class RecallMissed(ValueError):
    """The candidates do not hold the share of the neighbours asked for, or cost as much as an exact graph."""


@dataclass(frozen=True)
class Rule:
    """Which columns make candidates, and what a sample says of it."""

    share: float  # of the cost of all columns: those that come in within it
    columns: int  # so many
    candidates: int
    recall: float  # of the sample's second half
    recall_sample: int  # its rows
    recall_asked: float
    products_kept: float  # share of the exact graph's multiply-adds, in eight bits
    seconds: float  # predicted, of one core

    def require_gain(self, exact: Cost) -> None:
        """Raise `RecallMissed` where the exact graph is predicted to be as quick."""
        if self.seconds >= exact.seconds:
            raise RecallMissed(
                f"the approximate one, with the {self.columns} columns that its recall needs, is predicted to take {self.seconds:.0f} s"
            )

    def info(self) -> dict[str, Any]:
        return asdict(self)


def rule_for(X: Matrix, rows: list[Rows], k: int, metric: str, *, recall: float, candidates: int) -> Rule:
    """The fewest columns whose candidates hold the share `recall` of the true neighbours, on a sample.

    Raises
    ------
    ValueError : for a recall outside (0, 1] or fewer candidates than neighbours.
    RecallMissed : if all columns don't.
    """
    if not 0 < recall <= 1 or candidates < k:
        raise ValueError(f"recall must be in (0, 1] and candidates at least k={k}; got recall={recall}, candidates={candidates}")
    numbers = np.random.default_rng(SEED).permutation(X.shape[0])[:SAMPLE]
    *tried, true = _held(X, rows, numbers, k, candidates, metric)
    half = len(numbers) // 2
    chosen = next((s for s, held in enumerate(tried) if held[:half].sum() >= recall * true[:half].sum()), None)
    if chosen is None:
        reached = tried[-1][:half].sum() / max(true[:half].sum(), 1)
        raise RecallMissed(
            f"{candidates} candidates keep {reached:.2%} of the neighbours, not {recall:.2%}: "
            "ask for a lower recall or more candidates, or for the exact graph"
        )
    counts = X.stats.counts.astype(np.float64)
    kept = counts[column_shares(X) <= SHARES[chosen]]
    return Rule(
        share=SHARES[chosen],
        columns=len(kept),
        candidates=candidates,
        recall=float(tried[chosen][half:].sum() / max(true[half:].sum(), 1)),
        recall_sample=len(numbers) - half,
        recall_asked=recall,
        products_kept=products(kept) / max(products(counts), 1),
        seconds=sketch_seconds(kept, X.shape[0], candidates),
    )


def column_shares(X: Matrix) -> Array:
    """(d,): the share of the cost of all columns at which each comes in, the one with the most worth for its cost first.

    The cost of a column is its multiply-adds. Its worth is (Σx²)^1.5: what of a product is missed without it has a
    variance of about (Σx²)² over random pairs, and grows with Σx² itself over neighbours; 1.5 found the most neighbours.
    """
    cost = sketch_costs(X.stats.counts.astype(np.float64), X.shape[0])
    worth = np.divide(X.stats.squares**1.5, cost, out=np.zeros_like(cost), where=cost > 0)
    order = np.argsort(-worth.astype(np.float32), kind="stable")  # the last bits of Σx² depend on the tiles
    shares = np.empty_like(cost)
    shares[order] = np.cumsum(cost[order]) / max(cost.sum(), 1) - 1e-9  # with all of the cost all come in
    return shares


# --- the candidates -----------------------------------------------------------------------------


def candidates_of(X: Matrix, rows: list[Rows], rule: Rule, cosine: bool) -> tuple[list[Any], list[Any]]:
    """The blocks' candidates, as `sketch.found` reads them, and every task on the way; not run."""
    return tournament(X, rows, _inside, _meet, rule.candidates, column_shares(X) <= rule.share, cosine, uuid4().hex)


def _inside(rows: Rows, candidates: int, kept: Array, cosine: bool, search: str) -> Array:
    return sketch.inside(_sketched(rows, kept, search), candidates, len(kept), cosine)


def _meet(pair: tuple[Rows, Rows], of_a: Array, of_b: Array, _: int, kept: Array, cosine: bool, search: str) -> tuple[Array, Array]:
    A, B = (_sketched(rows, kept, search) for rows in pair)
    return sketch.meet(A, B, of_a, of_b, len(kept), cosine)


def _sketched(rows: Rows, kept: Array, search: str) -> Sketch:
    """A block's sketch, kept for the rest of its search while there is room."""

    def make() -> Sketch:
        return sketch.joined([sketch.sketch(kernel.side(piece, start), kept) for start, piece in rows.pieces()])

    return blocks.keep((search, rows.start), make)


# --- the sample ---------------------------------------------------------------------------------


def _held(X: Matrix, rows: list[Rows], numbers: Array, k: int, candidates: int, metric: str) -> list[Array]:
    """For each share, and last: how many true neighbours of each sampled row are among its candidates; how many it has."""
    order = np.sort(numbers)
    inside = [order[(order >= r.start) & (order < r.stop)] for r in rows]
    sample = sp.csr_array(sp.vstack(blocks.map_tiles(_take, rows, each=[inside], local=X.local), format="csr"))
    X.passes += 2
    runs = np.array_split(np.arange(len(rows)), min(len(rows), 2 * blocks.n_workers()))
    args = sample, order, column_shares(X), k, candidates, metric == "cosine"
    codes, lists = blocks.reduce_tiles(
        _try, [[rows[r] for r in run] for run in runs], *args, combine=_merged, local=X.local, label="recall"
    )
    *tried, true = (_pairs(found, order) for found in [*map(sketch.found, codes), lists.found])
    places = np.searchsorted(order, numbers)
    return [np.bincount(np.intersect1d(pairs, true) >> 32, minlength=len(order))[places] for pairs in [*tried, true]]


def _merged(parts: list[tuple[list[Array], Lists]]) -> tuple[list[Array], Lists]:
    codes, lists = zip(*parts, strict=True)
    best = [np.sort(np.hstack(same), axis=1)[:, : -same[0].shape[1] - 1 : -1] for same in zip(*codes, strict=True)]
    return best, kernel.merge(list(lists), lists[0].key.shape[1])


def _pairs(found: Array, order: Array) -> Array:
    """(row of the sample << 32) + neighbour, without the rows themselves and what is not there."""
    others = (found != order[:, None]) & (found != kernel.NONE)
    others &= np.cumsum(others, axis=1) < found.shape[1]
    return ((np.arange(len(order))[:, None] << 32) + found)[others]


def _take(rows: Rows, numbers: Array) -> sp.csr_array:
    return rows.load()[numbers - rows.start]


def _try(
    run: list[Rows], sample: sp.csr_array, order: Array, shares: Array, k: int, candidates: int, cosine: bool
) -> tuple[list[Array], Lists]:
    """In some blocks the sampled rows' candidates by each share, and their neighbours; one more of each, because they meet themselves."""
    ours, n = kernel.side(sample, LATER), len(order)
    asking = [sketch.sketch(ours, shares <= share) for share in SHARES]
    codes = [np.full((n, candidates + 1), sketch.NOBODY) for _ in SHARES]
    true = kernel.opened(ours, kernel.empty(n, k + 1), cosine)
    for rows in run:
        theirs = kernel.side(rows.load(), rows.start)
        kernel.scan(ours, theirs, true, kernel.closed(theirs, cosine), cosine)
        sketch.search(asking, sketch.sketch(theirs, np.ones(len(shares), bool)), codes, len(shares), cosine)
    return codes, true.lists
