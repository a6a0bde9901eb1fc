"""A sample of the rows: what few of them have in common with a row, and what a screen keeps of the
neighbours of some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph import sketch
from bigfs.graph.kernels import exact
from bigfs.graph.kernels import sketch as sketch_kernels
from bigfs.graph.kernels.exact import Lists
from bigfs.graph.row_blocks import Rows, stacked
from bigfs.graph.sketch import Best, Sketch
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

# sampled rows whose neighbours are found: the first half chooses a screen, the second measures its
# recall
MEASURED = 768
ONE_IN = 32  # of the rows is in the sample
ENTRIES = 1 << 21  # non-zeros of the sample, at most
OF_PAIRS = 1 << 22  # non-zeros of the measured rows' neighbours, at most
SEED = 0
# the number of a sampled row beyond all blocks: it is nobody's itself
LATER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Sample:
    """Rows of a matrix of n rows, by increasing number; the neighbours of those at `measured` are
    to be found.
    """

    rows: sp.csr_array
    numbers: AnyArray
    measured: AnyArray
    n: int


def sample_of(X: Matrix, rows: list[Rows], k: int) -> Sample:
    """A sample of the rows, of which k neighbours are to be found of some: the same whatever the
    blocks.
    """
    n, entries = X.shape[0], max(X.stats.nnz.sum() / X.shape[0], 1)  # of a row
    size = max(min(max(n / ONE_IN, MEASURED), ENTRIES / entries, sketch.STRIP), 2)
    some = max(min(MEASURED, OF_PAIRS / (k * entries)), 2)
    drawn = np.random.default_rng(SEED).permutation(n)[: int(size)]
    numbers = np.sort(drawn)
    return Sample(
        _gather(X, rows, numbers), numbers, np.searchsorted(numbers, drawn[: int(some)]), n
    )


@dataclass(frozen=True)
class Measured:
    """The measured rows' true neighbours, a pair each: what a screen would keep of them."""

    sample: Sample
    row: AnyArray  # of each pair: its place among the measured rows
    there: AnyArray  # of each pair: whether it is among the row's candidates if every pair passes
    ours: Sketch  # of each pair: the row, in all its columns
    theirs: Sketch  # of each pair: the neighbour
    cosine: bool

    @property
    def true(self) -> AnyArray:
        """How many neighbours each measured row has."""
        return np.bincount(self.row, minlength=len(self.sample.measured))

    def by(self, screen: AnyArray, ranks: list[int]) -> tuple[float, AnyArray, AnyArray]:
        """For a screen (mask of columns).

        Returns
        -------
        alike : the mean cosine of neighbours over the other columns, weighted by their norms; of
            the first half.
        held : (ranks, rows), how many neighbours pass, and are candidates then.
        passing : (ranks,), how many rows pass for a measured row, as the sample says.
        """
        within, beside, squares, other_squares = sketch.split(self.ours, self.theirs, screen)
        first = self.row < len(self.sample.measured) // 2
        lengths = np.sqrt(squares * other_squares)[first].sum()
        alike = float(np.clip(beside[first].sum() / lengths, 0, 1)) if lengths > 0 else 0.0
        scores = sketch.scores(
            within, squares, other_squares, alike, self.ours, self.theirs, self.cosine
        )
        asked, reached = _asked(self.sample, screen, alike, ranks, self.cosine)
        of_row = sp.csr_array(
            (self.there.astype(int), (self.row, np.arange(len(self.row)))),
            shape=(len(asked), len(self.row)),
        )
        held = of_row @ (scores[:, None] >= asked[self.row])
        return alike, held.T, reached.mean(axis=0) * self.sample.n / len(self.sample.numbers)


def measured(
    X: Matrix, rows: list[Rows], sample: Sample, k: int, candidates: int, rank: int, cosine: bool
) -> Measured:
    """Find the neighbours of the sample's measured rows; and their candidates by all columns, of
    pairs that so many sampled rows reach.
    """
    X.passes += 1
    every, numbers, own = (
        np.ones(X.shape[1], bool),
        sample.numbers[sample.measured],
        sample.rows[sample.measured],
    )
    asked = _asked(sample, every, 0.0, [rank], cosine)[0][:, 0]
    runs = min(len(rows), 2 * engine.n_workers())
    codes, lists = engine.reduce_tiles(
        _search,
        [rows[run::runs] for run in range(runs)],
        *(own, asked, k, candidates, cosine),
        combine=_merged,
        local=X.local,
        label="recall",
    )
    true, best = _pairs(lists.found, numbers), _pairs(sketch.found(codes), numbers)
    row, (others, place) = true >> 32, np.unique(true & sketch_kernels.LAST, return_inverse=True)
    pairs = own[row], _gather(X, rows, others)[place]
    ours, theirs = (sketch.sketch(exact.side(side, 0), sketch.beside(every), 0.0) for side in pairs)
    return Measured(sample, row, np.isin(true, best), ours, theirs, cosine)


def _asked(
    sample: Sample, screen: AnyArray, alike: float, ranks: list[int], cosine: bool
) -> tuple[AnyArray, AnyArray]:
    """What the measured rows ask of a pair, and how many sampled rows have it (rows, ranks)."""
    place, own = sketch.beside(screen), sample.measured
    among, some = (
        sketch.sketch(exact.side(rows, LATER), place, alike)
        for rows in (sample.rows, sample.rows[own])
    )
    return sketch.asked(some, sample.numbers[own], among, sample.numbers, ranks, cosine)


# --- tasks --------------------------------------------------------------------------------------


def _search(
    run: list[Rows], own: sp.csr_array, asked: AnyArray, k: int, candidates: int, cosine: bool
) -> tuple[AnyArray, Lists]:
    """In some blocks the candidates and the neighbours of rows; one more of each, because they meet
    themselves.
    """
    ours, (n, d) = exact.side(own, LATER), own.shape
    every = sketch.beside(np.ones(d, bool))
    asking, best = (
        sketch.sketch(ours, every, 0.0),
        Best(np.full((n, candidates + 1), sketch.NOBODY), asked),
    )
    true = exact.opened(ours, exact.empty(n, k + 1), cosine)
    for rows in run:
        theirs = exact.side(rows.load(), rows.start)
        exact.scan(ours, theirs, true, exact.closed(theirs, cosine), cosine)
        sketch.search(asking, sketch.sketch(theirs, every, 0.0), best, cosine)
    return best.codes, true.lists


def _merged(parts: list[tuple[AnyArray, Lists]]) -> tuple[AnyArray, Lists]:
    codes, lists = zip(*parts, strict=True)
    best = np.sort(np.hstack(codes), axis=1)[:, : -codes[0].shape[1] - 1 : -1]
    return best, exact.merge(list(lists), lists[0].key.shape[1])


def _pairs(found: AnyArray, numbers: AnyArray) -> AnyArray:
    """(place of the measured row << 32) + neighbour, without the rows themselves and what is not
    there.
    """
    others = (found != numbers[:, None]) & (found != exact.NONE)
    others &= np.cumsum(others, axis=1) < found.shape[1]
    return ((np.arange(len(numbers))[:, None] << 32) + found)[others]


def _gather(X: Matrix, rows: list[Rows], numbers: AnyArray) -> sp.csr_array:
    """The rows of these increasing numbers."""
    X.passes += 1
    inside = [numbers[(numbers >= r.start) & (numbers < r.stop)] for r in rows]
    return stacked(engine.map_tiles(_take, rows, each=[inside], local=X.local))


def _take(rows: Rows, numbers: AnyArray) -> sp.csr_array:
    return rows.load()[numbers - rows.start]
