"""Sums over tiles: few parts at a time, in the same tree, with the same dtype."""

import contextlib
import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest

from bigfs import Matrix, engine
from bigfs.engine.executor import TREE_ARITY
from tests.helpers.threads import threads

COUNT = 100
VALUES = np.random.default_rng(5).random((COUNT, 7)) * 10.0 ** np.arange(7)


@dataclass(frozen=True)
class Row:
    """A tile of one row that no process holds."""

    start: int
    stop: int

    def load(self):
        return VALUES[self.start : self.stop]


def rows(count=COUNT):
    return Matrix((count, 7), rows=[Row(i, i + 1) for i in range(count)])


def by_levels(parts, arity):
    """Add parts level by level, as the tasks of a cluster do."""
    while len(parts) > 1:
        parts = [sum(parts[k : k + arity], np.zeros(7)) for k in range(0, len(parts), arity)]
    return parts[0]


class Counter:
    """Makes arrays, and counts those that exist."""

    def __init__(self):
        self.now = self.most = 0

    def __call__(self, tile):
        part = VALUES[tile.start].copy()
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(part, self.drop)
        return part

    def drop(self):
        self.now -= 1


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 100])
def test_a_serial_sum_has_the_bits_of_the_tree_and_holds_few_parts(count):
    gc.collect()
    counter = Counter()
    total = engine.reduce_tiles(counter, rows(count).row_tiles)
    np.testing.assert_array_equal(total, by_levels(list(VALUES[:count]), TREE_ARITY))
    assert counter.most <= TREE_ARITY  # the results of tiles, beside their sums


@pytest.mark.parametrize("count", [1, 5, 8, 9, 23])
def test_a_sum_by_another_function_sees_the_parts_in_order(count):
    seen = engine.reduce_tiles(str, range(count), combine=",".join)
    assert seen == ",".join(map(str, range(count)))


@pytest.mark.parametrize("tile_rows", [None, 2])
def test_the_dtype_of_a_product_does_not_depend_on_the_tiles(tile_rows):
    S = VALUES[:6].astype(np.float32)
    X = Matrix((6, 7), rows=Matrix.from_array(S, tile_rows=tile_rows).row_tiles, local=True)
    assert (X.T @ np.ones(6, dtype=np.float32)).dtype == np.float64


@pytest.mark.process
def test_a_sum_on_a_cluster_shows_its_progress_and_has_the_serial_bits():
    shown = []
    with (
        engine.cluster(workers=1, memory_limit="1GB"),
        engine.progress(lambda *step: shown.append(step)),
    ):
        total = engine.reduce_tiles(first_row, rows(20).row_tiles, label="sums")
    np.testing.assert_array_equal(total, by_levels(list(VALUES[:20]), TREE_ARITY))
    assert shown[-1] == ("sums", 21, 21)  # the tiles, and the sum
    assert len(shown) == 21


def first_row(tile):
    return tile.load()[0]


begun = []


def add_row(block, start, stop, total):
    if total is None:
        begun.append(start)
    return block[0] if total is None else total + block[0]


@pytest.mark.parametrize("most", [1, 4, 7])
@pytest.mark.parametrize("on_cluster", [False, True])
def test_no_more_running_totals_are_begun_than_asked_for(most, on_cluster):
    """A group ended after 16 tiles: 100 tiles began 7 totals of at most 4."""
    begun.clear()
    with contextlib.ExitStack() as stack:
        if on_cluster:
            stack.enter_context(threads())
        total = rows().sum(add_row, 0, max_parts=most)
    np.testing.assert_allclose(total, VALUES.sum(axis=0), rtol=1e-12)
    assert sorted(begun) == list(range(0, COUNT, -(-COUNT // most)))
