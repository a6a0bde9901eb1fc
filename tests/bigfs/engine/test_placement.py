"""A tile has one worker, for passes, gathers and folds, and few tasks are under way at a time."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import cloudpickle
import dask
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import get_worker

from bigfs import Matrix, engine
from bigfs.engine.executor import TASKS_PER_THREAD, WINDOW, Pass
from bigfs.engine.shared import Reference, Shared, replace_held
from bigfs.matrix.view import ColumnSet, ColumnViewTile, RowSet
from tests.helpers.processes import until
from tests.helpers.threads import threads

WORKERS, TILES, WIDTH, ROWS = 8, 64, 3, 20


@dataclass(frozen=True)
class Part:
    """Some rows or columns of a matrix that has no other place. It records who loads them."""

    axis: int
    start: int
    stop: int
    place: float | None = field(default=None, compare=False)
    verified: ClassVar[bool] = True
    loads: ClassVar[list[tuple[int, int, str]]] = []
    lock: ClassVar[Any] = threading.Lock()

    def load(self):
        with self.lock:
            self.loads.append((self.axis, self.start, get_worker().address))
        block = whole()[self.start : self.stop] if self.axis == 0 else whole()[:, self.start :]
        return block if self.axis == 0 else sp.csc_array(block[:, : self.stop - self.start])


def whole():
    n = TILES * WIDTH
    return sp.csr_array(np.arange(n * n).reshape(n, n) % 5.0 * (np.arange(n * n).reshape(n, n) % 3))


def matrix(n_tiles=TILES):
    by = [
        [Part(axis, a, a + WIDTH, (a / WIDTH + 0.5) / n_tiles) for a in range(0, n, WIDTH)]
        for axis, n in ((0, TILES * WIDTH), (1, TILES * WIDTH))
    ]
    return Matrix((TILES * WIDTH, TILES * WIDTH), rows=by[0], columns=by[1])


def workers_of_tiles():
    homes = {}
    for axis, start, worker in Part.loads:
        homes.setdefault((axis, start), set()).add(worker)
    Part.loads.clear()
    return homes


@pytest.fixture(scope="module")
def eight():
    """Eight workers in threads of this process."""
    with (
        # a worker that is ahead takes tasks from one that is behind, and this file counts homes
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        threads(WORKERS, set_as_default=False) as own,
    ):
        yield own


def add_gram(block, start, stop, V, total):
    product = block.T @ (block @ V)
    return product if total is None else total + product


def test_every_tile_keeps_its_worker_through_passes_gathers_and_folds(eight, rng):
    X, V = matrix(), rng.integers(0, 5, (TILES * WIDTH, 4)).astype(float)
    S = whole().toarray()
    columns = np.arange(0, TILES * WIDTH, WIDTH)
    rows = np.flatnonzero(np.arange(TILES * WIDTH) % 4)
    with engine.cluster(eight):
        np.testing.assert_array_equal(X @ V, S @ V)
        passes = workers_of_tiles()
        np.testing.assert_array_equal(X.T @ V, S.T @ V)
        passes |= workers_of_tiles()
        assert len(passes) == 2 * TILES
        assert all(len(workers) == 1 for workers in passes.values())
        shares = Counter(next(iter(workers)) for workers in passes.values())
        assert set(shares.values()) == {2 * TILES // WORKERS}
        for label, compute, expected in (
            ("gather", lambda: X.columns(columns).toarray(), S[:, columns]),
            ("gather of some", lambda: X.columns(columns[::7]).toarray(), S[:, columns[::7]]),
            ("fold", lambda: X[rows] @ V, S[rows] @ V),
            ("fold by columns", lambda: X[rows].T @ V[rows], S[rows].T @ V[rows]),
            ("part", lambda: X.take_columns(columns) @ V[columns], S[:, columns] @ V[columns]),
            ("sums", lambda: X.sum(add_gram, 0, V, max_parts=5), S.T @ (S @ V)),
            ("sums", lambda: X.sum(add_gram, 0, V, max_parts=64), S.T @ (S @ V)),
            ("rows", lambda: X.rows(rows).toarray(), S[rows]),
        ):
            np.testing.assert_array_equal(compute(), expected, label)
            homes = workers_of_tiles()
            assert homes, label
            assert {tile: passes[tile] for tile in homes} == homes, label


class Threads:
    """An executor that knows its workers and runs nothing."""

    client = None

    def threads(self):
        return {"a": 1, "b": 4}


def test_a_worker_has_as_many_tiles_as_threads():
    tiles = [Part(0, i, i + 1, (i + 0.5) / 60) for i in range(60)]
    assert Counter(Pass(Threads(), number, tiles, (), ()).homes) == {"a": 12, "b": 48}


def number(tile):
    return tile.start


def test_few_results_of_a_stream_wait_for_the_driver(eight, monkeypatch):
    sent = []
    start = Pass.start

    def counting(self, numbers):
        sent.append(len(numbers))
        return start(self, numbers)

    monkeypatch.setattr(Pass, "start", counting)
    tiles = [Part(0, i, i + 1, (i + 0.5) / 200) for i in range(200)]
    with engine.cluster(eight):
        open_at = []
        got = {}
        for done, (i, result) in enumerate(engine.stream_tiles(number, tiles), 1):
            open_at.append(sum(sent) - done)
            got[i] = result
    assert got == {i: i for i in range(200)}
    assert sent[0] == WINDOW * WORKERS
    assert max(open_at) <= 2 * WINDOW * WORKERS
    assert sum(sent) == 200


def fail(tile):
    raise ValueError(f"tile {tile.start}")


def test_a_stream_that_fails_says_why_and_leaves_no_task(eight):
    tiles = [Part(0, i, i + 1, (i + 0.5) / 50) for i in range(50)]
    with engine.cluster(eight), pytest.raises(ValueError, match="tile "):
        list(engine.stream_tiles(fail, tiles))
    until(lambda: not any(eight.processing().values()), "the scheduler lets the tasks go")


def tasks_of_maps(client, monkeypatch):
    """The numbers of the tasks that each map of a client sends."""
    calls, send = [], client.map

    def counting(fn, tiles, *operands, **options):
        calls.append(len(tiles))
        return send(fn, tiles, *operands, **options)

    monkeypatch.setattr(client, "map", counting)
    return calls


def test_many_tiles_make_few_tasks_and_the_same_bits(eight, rng, monkeypatch):
    n = 8 * 8 * WORKERS + 11
    tiles = [Part(0, i, i + 1, (i + 0.5) / n) for i in range(n)]
    values = list(rng.random((n, 5)))
    calls = tasks_of_maps(eight, monkeypatch)
    serial = engine.reduce_tiles(scaled, tiles, 3.0, each=[values])
    assert not calls
    with engine.cluster(eight):
        together = engine.reduce_tiles(scaled, tiles, 3.0, each=[values])
        n_tasks = sum(calls)
        calls.clear()
        parts = engine.map_tiles(scaled, tiles, 3.0, each=[values])
    np.testing.assert_array_equal(together, serial)
    np.testing.assert_array_equal(parts, 3.0 * np.array(values))
    assert n_tasks <= n / 8 + 7 * WORKERS  # groups that two workers share are single tiles
    assert sum(calls) <= n / 8 + WORKERS + 1


def test_the_driver_holds_nothing_of_a_pass_and_its_tasks_are_bounded(eight, monkeypatch):
    calls = tasks_of_maps(eight, monkeypatch)
    n = 100 * TASKS_PER_THREAD * WORKERS
    tiles = [Part(0, i, i + 1, (i + 0.5) / n) for i in range(n)]
    with engine.cluster(eight):
        assert engine.reduce_tiles(number, tiles) == n * (n - 1) / 2
        assert engine.map_tiles(number, tiles) == list(range(n))
    until(lambda: not eight.futures, "the release of all futures")  # in the client's thread
    # 64 tiles of a sum are one task, and few of those belong to two workers
    assert sum(calls) <= n / 64 + 64 * WORKERS + (TASKS_PER_THREAD + 2) * WORKERS


def scaled(tile, value, factor):
    return factor * value


def test_the_rows_of_a_fold_travel_once_and_not_with_every_tile(rng):
    rows = np.flatnonzero(rng.random(80_000) < 0.5)
    X = matrix()
    shared = engine.Shared(RowSet.of(rows, 80_000))
    tiles = [ColumnViewTile(t.start, t.stop, t, shared) for t in X.column_tiles]
    index = engine.Shared(ColumnSet.of(np.arange(0, 100_000, 10), 100_000))
    tiles += [ColumnViewTile(t.start, t.stop, t, index) for t in tiles]
    sent = {}

    def refer(shared):
        sent[id(shared)] = shared
        return Reference(id(shared))

    travelling = [replace_held(tile, Shared, refer) for tile in tiles]
    assert len(sent) == 2
    assert all(len(cloudpickle.dumps(tile)) < 1000 for tile in travelling)

    def attach(reference):
        return Shared(sent[reference.number].value)

    arrived = [replace_held(tile, Reference, attach) for tile in travelling]
    for tile, again in zip(tiles, arrived, strict=True):
        while hasattr(tile, "tile"):
            for name in ("view",):
                assert getattr(again, name).value is getattr(tile, name).value
            tile, again = tile.tile, again.tile
        assert tile == again
