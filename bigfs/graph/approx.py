"""Approximate neighbours of text: candidates by the rarer terms, compared exactly.

A term in many rows costs the square of their number and says little. Leave out the terms whose document
frequency passes a cap; the candidates of a row are the few dozen others with the largest product of what is
left (over the full norms), and only they are compared by all terms. The cap comes from the recall asked
for: a sample of rows, whose exact neighbours are known, says what each cap would have kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import blocks
from bigfs.graph import kernel
from bigfs.graph.cost import Cost, products, seconds
from bigfs.graph.kernel import Lists, Side
from bigfs.graph.rows import Rows
from bigfs.matrix import Array, Matrix

CAPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the rows; a higher one saves too little
SAMPLE = 1024  # rows; the first half chooses the cap, the second measures the recall
SEED = 0


class NoRareTerms(ValueError):
    """No cap keeps the recall asked for and saves work: the columns are too frequent, as in dense data."""


@dataclass(frozen=True)
class Rule:
    """Which columns make candidates, and what a sample says of it."""

    cap: float  # of the rows: a column in more of them is left out
    candidates: int
    recall: float  # of the sample's second half
    recall_sample: int  # its rows
    recall_asked: float
    products_kept: float  # share of the exact graph's multiply-adds
    seconds: float  # predicted, of one core

    def require_gain(self, exact: Cost) -> None:
        """Raise `NoRareTerms` where the exact graph is predicted to be as quick."""
        if self.seconds >= exact.seconds:
            raise NoRareTerms(
                f"the approximate one, with the columns in up to {self.cap:.1%} of the rows that its recall needs, "
                f"is predicted to take {self.seconds:.0f} s"
            )

    def info(self) -> dict[str, Any]:
        return asdict(self)


def rare_terms(X: Matrix, rows: list[Rows], k: int, metric: str, *, recall: float, candidates: int) -> Rule:
    """The lowest cap whose candidates hold the share `recall` of the true neighbours, on a sample.

    Raises
    ------
    ValueError : for a recall outside (0, 1] or fewer candidates than neighbours.
    NoRareTerms : if no cap does.
    """
    if not 0 < recall <= 1 or candidates < k:
        raise ValueError(f"recall must be in (0, 1] and candidates at least k={k}; got recall={recall}, candidates={candidates}")
    n, counts = X.shape[0], X.stats.counts
    caps = [cap for cap in CAPS if np.any((counts > 0) & (counts <= cap * n))]
    numbers = np.random.default_rng(SEED).permutation(n)[:SAMPLE]
    kept = _kept(X, rows, numbers, [cap * n for cap in caps], k, candidates, metric)
    half = len(numbers) // 2
    chosen = next((c for c in range(len(caps)) if kept[c][:half].sum() >= recall * kept[-1][:half].sum()), None)
    if chosen is None:
        reached = [f"{kept[c][:half].sum() / max(kept[-1][:half].sum(), 1):.3f} at {cap:.1%}" for c, cap in enumerate(caps)]
        raise NoRareTerms(
            f"no cap on the frequency of a column keeps {recall:.1%} of the neighbours ({', '.join(reached) or 'no column is rare'}): "
            "ask for a lower recall or more candidates, or for the exact graph"
        )
    measured = kept[chosen][half:].sum() / max(kept[-1][half:].sum(), 1)
    rare = counts[counts <= caps[chosen] * n].astype(np.float64)
    share = products(rare) / max(products(counts.astype(np.float64)), 1)
    both_ways = 2 * seconds(rare, n)  # each pair is met from either side
    return Rule(caps[chosen], candidates, float(measured), len(numbers) - half, recall, float(share), both_ways)


def search(
    X: Matrix, own: list[Rows], others: list[Rows], k: int, metric: str, rule: Rule, finish: Callable[[Rows, Lists], Any]
) -> list[Any]:
    """Each of the blocks `own` against all of `others`, twice: for its candidates, then to compare them."""
    rare = X.stats.counts <= rule.cap * X.shape[0]
    cosine = metric == "cosine"
    done = blocks.map_tiles(_nearest, own, others, rare, k, rule.candidates, cosine, finish, local=X.local, label="neighbours")
    X.passes += 2 * len(own)
    return done


# --- the sample ---------------------------------------------------------------------------------


def _kept(X: Matrix, rows: list[Rows], numbers: Array, most: list[float], k: int, candidates: int, metric: str) -> list[Array]:
    """For each cap, then for none: how many true neighbours of each sampled row are among its candidates."""
    order = np.sort(numbers)
    inside = [order[(order >= r.start) & (order < r.stop)] for r in rows]
    sample = sp.csr_array(sp.vstack(blocks.map_tiles(_take, rows, each=[inside], local=X.local), format="csr"))
    X.passes += 2
    widths = [candidates + 1] * len(most) + [k + 1]  # one more than asked for: a sampled row meets itself
    args = (sample, order, X.stats.counts, [*most, np.inf], widths, metric == "cosine")
    found: list[Lists] = blocks.reduce_tiles(_try_caps, rows, *args, combine=_merged, local=X.local, label="recall")
    *tried, true = (_others(lists, order) for lists in found)
    return [np.array([len(np.intersect1d(mine[i], true[i])) for i in np.searchsorted(order, numbers)]) for mine in [*tried, true]]


def _merged(parts: list[list[Lists]]) -> list[Lists]:
    return [kernel.merge(list(same), same[0].key.shape[1]) for same in zip(*parts, strict=True)]


def _others(lists: Lists, order: Array) -> list[Array]:
    """Each row's list without itself and without what is not there."""
    width = lists.key.shape[1] - 1
    return [row[(row != i) & (row != kernel.NONE)][:width] for i, row in zip(order, lists.found, strict=True)]


def _take(rows: Rows, numbers: Array) -> sp.csr_array:
    return rows.load()[numbers - rows.start]


def _try_caps(
    rows: Rows, sample: sp.csr_array, order: Array, counts: Array, most: list[float], widths: list[int], cosine: bool
) -> list[Lists]:
    ours, theirs = kernel.side(sample, 0), kernel.side(rows.load(), rows.start)
    found = []
    for count, width in zip(most, widths, strict=True):
        A, B = (_restricted(side, counts <= count) for side in (ours, theirs))
        state = kernel.opened(A, width, cosine)
        kernel.scan(A, B, state, kernel.closed(B, cosine), cosine)
        found.append(state.lists)
    return found


# --- the search ---------------------------------------------------------------------------------


def _nearest(
    own: Rows, others: list[Rows], rare: Array, k: int, candidates: int, cosine: bool, finish: Callable[[Rows, Lists], Any]
) -> Any:
    A = kernel.side(own.load(), own.start)
    some = _restricted(A, rare)
    state = kernel.opened(some, candidates + 1, cosine)  # one more than asked for: a row meets itself
    for rows in others:
        B = _restricted(kernel.side(rows.load(), rows.start), rare)
        kernel.scan(some, B, state, kernel.closed(B, cosine), cosine)
    lists = kernel.empty(len(A.squares), k)
    found = np.where(state.lists.found == own.start + np.arange(len(A.squares))[:, None], kernel.NONE, state.lists.found)
    for rows in others:
        kernel.rerank(A, found, kernel.side(rows.load(), rows.start), lists, cosine)
    return finish(own, lists)


def _restricted(side: Side, kept: Array) -> Side:
    """The same rows with only the columns `kept`; their norms stay those of the whole rows."""
    rows = side.rows
    inside = kept[rows.indices]
    before = np.concatenate([[0], np.cumsum(inside)])
    return Side(
        sp.csr_array((rows.data[inside], rows.indices[inside], before[rows.indptr].astype(np.int64)), rows.shape), side.first, side.squares
    )
