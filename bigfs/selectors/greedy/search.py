"""Greedy selection: one feature after another, by its relevance and its terms with those chosen.

    choose argmax_j J_s(j),      J_s from R_j and the terms t_ji of j with the s chosen features i

A term is computed only when it can decide: the total of the terms so far bounds J_s(j) from above,
and a feature whose bound is below the best J_s waits. Its columns are gathered when they are
needed first. Where too many are needed for the memory, a pass over X computes the terms of all.
The terms of a feature are added in the order of the choices. So the choice depends neither on what
was gathered nor on the tiles.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.result import Status, iterate
from bigfs.selectors.base.estimator import BYTES_PER_ENTRY, Cost, Selector, map_all_columns
from bigfs.selectors.greedy.correlations import Correlations
from bigfs.selectors.scores.bins import Information
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

MEMORY_SHARE = Setting(0.1)  # for the gathered columns
MAX_LINE_BYTES = Setting(64 << 20)  # of chosen features, one number per sample, at a time or kept
BATCH = Setting(16)  # features whose terms are computed at once, at first; twice as many each time
AHEAD = 256  # columns gathered at once, at least; later as many as there are
LARGE_SHARE = 0.125  # of the non-zeros: columns that hold more are not gathered batch by batch


class Problem(NamedTuple):
    """The parts of a criterion."""

    relevance: FloatArray  # (d,) R of each feature
    pairs: Correlations | Information
    informed: BoolArray  # (d,) whether a feature says anything. The others are not chosen
    largest: FloatArray | float = 0.0  # (d,) no term of a feature is larger, where terms add to J


class Greedy(NamedTuple):
    """The choices so far."""

    selected: IntArray  # (s,) in the order of the choices
    criterion: FloatArray  # (s,) the value of each when it was chosen
    totals: FloatArray  # (d,) total of the terms of each feature
    counted: IntArray  # (d,) how many chosen features the total holds


class GreedySelector(Selector):
    """Chooses one feature after another. A subclass writes `_prepare` and `_criterion`."""

    _cost = Cost("1 to m", "d + columns")
    _feature_bytes = 120  # (measured)
    _least = False  # whether a total is the least of R and the terms, and not the sum of these

    def _fit(self, X: Matrix, y: Any) -> None:
        d = X.shape[1]
        problem = self._prepare(X, y)
        silent = np.union1d(self._constraints.constant, np.flatnonzero(~problem.informed))
        self._constraints = self._constraints.with_constant(silent)
        m = self._count(d)
        # correlations do not depend on where the zero is
        near = X.near_zero() if isinstance(problem.pairs, Correlations) else X
        columns = _Columns(near, problem.pairs, m)
        totals = problem.relevance.copy() if self._least else np.zeros(d)
        self.result_ = iterate(
            lambda state: self._step(state, problem, columns),
            Greedy(np.empty(0, np.int64), np.empty(0), totals, np.zeros(d, np.int64)),
            measure=lambda state: {
                "features": len(state.selected),
                "gathered": columns.count,
                "left": m - len(state.selected),
            },
            stop="left",
            tol=0,
            max_iter=m,
            name=type(self).__name__,
            reached=Status.FINISHED,
        )
        self.result_.stats["gathered"] = columns.count
        self.criterion_ = self.result_.value.criterion
        self.scores_ = np.zeros(d)
        self.scores_[self.result_.value.selected] = 1 - np.arange(m) / m

    @abstractmethod
    def _prepare(self, X: Matrix, y: Any) -> Problem:
        """Return the relevance of each feature, and what computes the terms."""

    @abstractmethod
    def _criterion(
        self, problem: Problem, totals: FloatArray, pending: IntArray, s: int
    ) -> FloatArray:
        """Return J from the totals of s terms, or an upper bound where `pending` are missing."""

    def _step(self, state: Greedy, problem: Problem, columns: _Columns) -> Greedy:
        """Choose the feature of largest J, the first one of several."""
        s, totals, counted = len(state.selected), state.totals.copy(), state.counted.copy()
        score = problem.relevance.astype(np.float64)
        blocked = self._blocked(state)
        batch = BATCH.value
        while True:  # until no feature that waits can be the best
            if s:
                score = self._criterion(problem, totals, s - counted, s)
            score[blocked] = -np.inf
            exact = counted == s
            exact[blocked] = True
            best = score[exact].max(initial=-np.inf)
            stale = np.flatnonzero(~exact & (score >= best))
            if not len(stale):
                break
            index = columns.require(stale, score, batch)
            self._update(index, state.selected, totals, counted, columns)
            batch *= 2
        chosen = int(score.argmax())
        selected, criterion = state.selected, state.criterion
        chosen_too = np.append(selected, chosen), np.append(criterion, score[chosen])
        return Greedy(*chosen_too, totals, counted)

    def _blocked(self, state: Greedy) -> BoolArray:
        """Return the mask of the features that may not be chosen next.

        These are the chosen and absent ones, and all but the kept ones while kept ones are left.
        """
        kept = self._constraints.kept
        blocked = np.full(len(state.totals), len(state.selected) < len(kept))
        blocked[kept] = False
        blocked[self._constraints.absent] = True
        blocked[state.selected] = True
        return blocked

    def _update(
        self,
        index: IntArray | None,
        selected: IntArray,
        totals: FloatArray,
        counted: IntArray,
        columns: _Columns,
    ) -> None:
        """Add the missing terms of these features, or of all if None, to their totals."""
        everyone = index is None
        index = np.arange(len(totals)) if index is None else index
        waiting = index[~np.isin(index, selected)]
        first = int(counted[waiting].min())
        while first < len(selected):
            # parts begin at multiples, so that the first one is made of the lines that are kept
            stop = min(first - first % columns.max_lines + columns.max_lines, len(selected))
            lines = columns.lines(selected, first, stop)
            skipped = np.clip(counted[index] - first, 0, len(lines))
            terms = columns.terms(None if everyone else index, lines, skipped)
            _add(index, terms, skipped, self._least, totals)
            counted[index] = np.maximum(counted[index], stop)
            first = stop


class _Columns:
    """The prepared columns that are gathered in memory, and passes over those that are not."""

    def __init__(self, X: Matrix, pairs: Correlations | Information, m: int) -> None:
        self.X, self.pairs = X, pairs
        self.nnz = X.stats.nnz
        self.position = np.full(X.shape[1], -1, dtype=np.int64)  # −1: not gathered
        self.Z: Any = None
        self.count = 0
        self.max_lines = max(1, MAX_LINE_BYTES.value // (pairs.line_bytes * X.shape[0]))
        self.room = min(self.max_lines, m)
        # lines by the number of their part, with how many there are: the first part, which every
        # late feature needs, and the last one, which grows
        self._kept: dict[int, tuple[AnyArray, int]] = {}

    def require(self, stale: IntArray, score: FloatArray, batch: int) -> IntArray | None:
        """Return which of the stale features to update, gathered, or None for a pass over all."""
        missing = stale[self.position[stale] < 0]
        # in the first round nothing is known that could leave features out
        is_late = batch > BATCH.value and self.nnz[missing].sum() > LARGE_SHARE * self.nnz.sum()
        if is_late and not self._gather(missing):
            return None
        first = _best(stale, score, batch)
        missing = first[self.position[first] < 0]
        if not len(missing):
            return first
        ahead = np.flatnonzero((self.position < 0) & (score > -np.inf))
        ahead = np.union1d(missing, _best(ahead, score, max(AHEAD, self.count)))
        return first if self._gather(ahead) or self._gather(missing) else None

    def lines(self, selected: IntArray, first: int, stop: int) -> AnyArray:
        """Return the chosen features [first, stop) as lines. They are of one part."""
        part, last = first // self.max_lines, (len(selected) - 1) // self.max_lines
        if 0 < part < last:
            return self._read_lines(selected[first:stop])
        start = part * self.max_lines
        self._kept = {k: kept for k, kept in self._kept.items() if k in (0, last)}
        lines, count = self._kept.get(part, (np.empty((0, 0)), 0))
        if stop - start > count:
            new = self._read_lines(selected[start + count : stop])
            if not count:
                lines = np.empty((self.room, new.shape[1]), new.dtype)
            lines[count : stop - start] = new
            self._kept[part] = lines, stop - start
        return lines[first - start : stop - start]

    def _read_lines(self, chosen: IntArray) -> AnyArray:
        place = self.position[chosen]
        return self.pairs.lines(self._read(chosen) if (place < 0).any() else self.Z[:, place])

    def terms(self, index: IntArray | None, lines: AnyArray, skipped: IntArray) -> FloatArray:
        """Return the terms of gathered features with the lines, or of all features in one pass."""
        if index is not None:
            return self.pairs.terms(self.Z[:, self.position[index]], lines, skipped)
        parts = map_all_columns(self.X, _terms_of_block, self.pairs, lines, label="redundancy")
        return np.concatenate(parts)

    def _gather(self, index: IntArray) -> bool:
        """Gather these columns. False, where they do not fit in memory."""
        entries = int(self.nnz[index].sum()) + (self.Z.nnz if self.count else 0)
        if entries * BYTES_PER_ENTRY > MEMORY_SHARE.value * engine.memory_limit():
            return False
        self.position[index] = self.count + np.arange(len(index))
        self.count += len(index)
        Z = self._read(index)
        self.Z = Z if self.Z is None else sp.csc_array(sp.hstack([self.Z, Z], format="csc"))
        return True

    def _read(self, index: IntArray) -> sp.csc_array:
        return self.pairs.prepare(self.X.columns(index))


def _best(index: IntArray, score: FloatArray, count: int) -> IntArray:
    """Return the `count` features of this index with the largest scores, the first of equals."""
    if count < len(index):
        least = -np.partition(-score[index], count - 1)[count - 1]
        index = index[score[index] >= least]
    return index[np.argsort(-score[index], kind="stable")[:count]]


@njit(cache=True)
def _add(
    index: IntArray, terms: FloatArray, skipped: IntArray, least: bool, totals: FloatArray
) -> None:
    """Add the terms of each feature to its total, in the order of the choices."""
    for k, j in enumerate(index):
        for i in range(skipped[k], terms.shape[1]):
            totals[j] = min(totals[j], terms[k, i]) if least else totals[j] + terms[k, i]


def _terms_of_block(
    block: Any, start: int, stop: int, pairs: Correlations | Information, lines: AnyArray
) -> FloatArray:
    """Return the terms of a tile of columns with all lines (width × lines)."""
    return pairs.terms(pairs.prepare(block), lines, np.zeros(stop - start, dtype=np.int64))
