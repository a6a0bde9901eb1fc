"""A random sample of rows, to set thresholds and estimate the recall of a screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.approximate import sketch
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import NeighborLists
from bigfs.graph.kernels.sketch import MAX_ROW_ID, CandidateLists, Sketch, split_products
from bigfs.graph.row_blocks import RowBlock, stack_rows
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.matrix import Matrix

# Sampled rows whose exact neighbors are computed. The first half chooses a screen, the second half
# estimates its recall.
N_MEASURED = 768
ROWS_PER_SAMPLED_ROW = 32
MAX_SAMPLE_ENTRIES = 1 << 21  # non-zeros of the sample
MAX_NEIGHBOR_ENTRIES = 1 << 22  # non-zeros of the neighbors of the measured rows
SEED = 0
# Row number of a sampled row in a kernel. No block has it, so no row is taken for its own neighbor.
SAMPLE_ROW_ID = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Sample:
    """Sampled rows of a matrix of `n` rows, by increasing number."""

    rows: sp.csr_array
    numbers: AnyArray  # their numbers in the whole matrix
    measured: AnyArray  # positions in the sample of the rows whose exact neighbors are computed
    n: int


def draw_sample(X: Matrix, blocks: list[RowBlock], k: int) -> Sample:
    """Draw a sample of the rows for a graph of k neighbors. It does not depend on the blocks."""
    n = X.shape[0]
    entries_per_row = max(X.stats.nnz.sum() / n, 1)
    size = max(n / ROWS_PER_SAMPLED_ROW, N_MEASURED)
    size = max(min(size, MAX_SAMPLE_ENTRIES / entries_per_row, sketch.STRIP_ROWS.value), 2)
    n_measured = max(min(N_MEASURED, MAX_NEIGHBOR_ENTRIES / (k * entries_per_row)), 2)
    drawn = np.random.default_rng(SEED).permutation(n)[: int(size)]
    numbers = np.sort(drawn)
    measured = np.searchsorted(numbers, drawn[: int(n_measured)])
    return Sample(gather(X, blocks, numbers), numbers, measured, n)


class ScreenEstimate(NamedTuple):
    """The sample's estimate of a screen."""

    # mean cosine of neighbors over the other columns, weighted by norms, from the first half
    residual_cosine: float
    n_found: AnyArray  # (ranks, measured rows): neighbors that pass and are candidates
    n_passing: AnyArray  # (ranks,): estimated number of rows that pass, per row


@dataclass(frozen=True)
class MeasuredNeighbors:
    """The exact neighbors of the measured rows, as pairs of a row and a neighbor."""

    sample: Sample
    row: AnyArray  # (pairs,): position of the pair's row among the measured rows
    # (pairs,): whether the neighbor is a candidate if every column is screened
    is_candidate: AnyArray
    rows: Sketch  # the pair's row, with all columns screened
    neighbors: Sketch  # the pair's neighbor, the same
    cosine: bool

    @property
    def n_true(self) -> AnyArray:
        """Number of exact neighbors of each measured row."""
        return np.bincount(self.row, minlength=len(self.sample.measured))

    def estimate(self, screen: AnyArray, ranks: list[int]) -> ScreenEstimate:
        """Estimate what a screen (mask of columns) finds with the thresholds of each rank."""
        products, other_products, other_squares_a, other_squares_b = split_products(
            self.rows, self.neighbors, screen
        )
        in_first_half = self.row < len(self.sample.measured) // 2
        norms = np.sqrt(other_squares_a * other_squares_b)[in_first_half].sum()
        residual_cosine = (
            float(np.clip(other_products[in_first_half].sum() / norms, 0, 1)) if norms > 0 else 0.0
        )
        scores = sketch.screened_scores(
            products,
            other_squares_a,
            other_squares_b,
            residual_cosine,
            self.rows,
            self.neighbors,
            self.cosine,
        )
        thresholds, n_reaching = _thresholds(
            self.sample, screen, residual_cosine, ranks, self.cosine
        )
        candidates_by_row = sp.csr_array(
            (self.is_candidate.astype(int), (self.row, np.arange(len(self.row)))),
            shape=(len(thresholds), len(self.row)),
        )
        n_found = candidates_by_row @ (scores[:, None] >= thresholds[self.row])
        n_passing = n_reaching.mean(axis=0) * self.sample.n / len(self.sample.numbers)
        return ScreenEstimate(residual_cosine, n_found.T, n_passing)


def measure_neighbors(
    X: Matrix,
    blocks: list[RowBlock],
    sample: Sample,
    k: int,
    candidates: int,
    rank: int,
    cosine: bool,
) -> MeasuredNeighbors:
    """Compute the exact neighbors of each measured row, and its candidates with every column."""
    X.passes += 1
    all_columns = np.ones(X.shape[1], bool)
    numbers = sample.numbers[sample.measured]
    measured_rows = sample.rows[sample.measured]
    thresholds = _thresholds(sample, all_columns, 0.0, [rank], cosine)[0][:, 0]
    n_tasks = min(len(blocks), 2 * engine.n_workers())
    if engine.lazy_inputs(X.row_tiles):  # a task would wait for the inputs of all its blocks
        n_tasks = len(blocks)
    codes, lists = engine.reduce_tiles(
        _search,
        [blocks[task::n_tasks] for task in range(n_tasks)],
        *(measured_rows, thresholds, k, candidates, cosine),
        combine=_merge,
        local=X.local,
        label="recall",
    )
    true_pairs = _pair_codes(lists.neighbor, numbers)
    candidate_pairs = _pair_codes(sketch.candidate_rows(codes), numbers)
    row = true_pairs >> 32
    neighbors, position = np.unique(true_pairs & MAX_ROW_ID, return_inverse=True)
    rows_of_pairs, neighbors_of_pairs = (
        sketch.sketch_rows(exact.kernel_block(rows, 0), sketch.unscreened_index(all_columns), 0.0)
        for rows in (measured_rows[row], gather(X, blocks, neighbors)[position])
    )
    return MeasuredNeighbors(
        sample,
        row,
        np.isin(true_pairs, candidate_pairs),
        rows_of_pairs,
        neighbors_of_pairs,
        cosine,
    )


def _thresholds(
    sample: Sample, screen: AnyArray, residual_cosine: float, ranks: list[int], cosine: bool
) -> tuple[AnyArray, AnyArray]:
    """Return the measured rows' thresholds per rank, and how many sampled rows reach them."""
    unscreened = sketch.unscreened_index(screen)
    all_rows, measured_rows = (
        sketch.sketch_rows(exact.kernel_block(rows, SAMPLE_ROW_ID), unscreened, residual_cosine)
        for rows in (sample.rows, sample.rows[sample.measured])
    )
    numbers = sample.numbers[sample.measured]
    return sketch.sample_thresholds(measured_rows, numbers, all_rows, sample.numbers, ranks, cosine)


# --- tasks --------------------------------------------------------------------------------------


def _search(
    blocks: list[RowBlock],
    measured_rows: sp.csr_array,
    thresholds: AnyArray,
    k: int,
    candidates: int,
    cosine: bool,
) -> tuple[AnyArray, NeighborLists]:
    """Search some blocks for the candidates and the neighbors of the measured rows. The lists have
    room for one more, because a row may meet itself."""
    n, d = measured_rows.shape
    A = exact.kernel_block(measured_rows, SAMPLE_ROW_ID)
    unscreened = sketch.unscreened_index(np.ones(d, bool))
    A_sketch = sketch.sketch_rows(A, unscreened, 0.0)
    lists = CandidateLists(np.full((n, candidates + 1), sketch.EMPTY_CODE), thresholds)
    state = exact.search_state(A, exact.empty_lists(n, k + 1), cosine)
    for block in blocks:
        B = block.load_kernel()
        exact.scan(A, B, state, exact.rejecting_state(B, cosine), cosine)
        sketch.search(A_sketch, sketch.sketch_rows(B, unscreened, 0.0), lists, cosine)
    return lists.codes, state.lists


def _merge(parts: list[tuple[AnyArray, NeighborLists]]) -> tuple[AnyArray, NeighborLists]:
    """Merge the results of several tasks for the same rows."""
    codes, lists = zip(*parts, strict=True)
    best = np.sort(np.hstack(codes), axis=1)[:, : -codes[0].shape[1] - 1 : -1]
    return best, exact.merge(list(lists), lists[0].key.shape[1])


def _pair_codes(index: AnyArray, numbers: AnyArray) -> AnyArray:
    """Return (position of the measured row << 32) + neighbor for each other row in its lists."""
    is_neighbor = (index != numbers[:, None]) & (index != exact.NO_NEIGHBOR)
    is_neighbor &= np.cumsum(is_neighbor, axis=1) < index.shape[1]
    return ((np.arange(len(numbers))[:, None] << 32) + index)[is_neighbor]


def gather(X: Matrix, blocks: list[RowBlock], numbers: AnyArray) -> sp.csr_array:
    """Gather the rows of these increasing numbers."""
    X.passes += 1
    by_block = [numbers[(numbers >= b.start) & (numbers < b.stop)] for b in blocks]
    return stack_rows(engine.map_tiles(_take, blocks, each=[by_block], local=X.local))


def _take(block: RowBlock, numbers: AnyArray) -> sp.csr_array:
    return block.load()[numbers - block.start]
