"""How many blocks of a Dask array exist at a time, in every method and every graph."""

import gc
import warnings
import weakref
from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import Matrix, engine
from bigfs.graph import knn, stream_knn
from bigfs.graph.class_neighbors import neighbors_by_class
from bigfs.graph.discriminant import local_discriminant
from bigfs.graph.hypergraph.lasso import lasso_hyperedges
from bigfs.matrix.construction import TILE_VALUES
from bigfs.result import NotConvergedWarning
from bigfs.selectors.registry import METHODS
from bigfs.selectors.sparge.cross_validation import EndOfGridWarning
from tests.helpers.daily import daily
from tests.helpers.threads import threads

N, D, BLOCKS = 128, 12, 64


class Alive:
    """Counts the blocks that exist, and the most that existed at a time."""

    def __init__(self):
        self.now = self.most = self.made = 0

    def add(self, block):
        self.made += 1
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(block, self.drop)
        return block

    def drop(self):
        self.now -= 1


ALIVE = Alive()


@pytest.fixture
def alive(monkeypatch):
    monkeypatch.setattr(engine.workers, "_fits", lambda size: False)  # the cache is full
    gc.collect()
    ALIVE.__init__()
    return ALIVE


def dense_rows():
    rng = np.random.default_rng(3)
    y = np.arange(N) % 2
    X = rng.random((N, D))
    X[:, :2] += y[:, None]
    return X, y


def make(first, last):
    return ALIVE.add(dense_rows()[0][first:last].copy())


def counted(size=N // BLOCKS):
    """The rows in blocks, each of which is counted while it exists."""
    return da.concatenate(
        [
            da.from_delayed(
                dask.delayed(make, pure=False)(a, a + size), (size, D), meta=np.empty((0, 0))
            )
            for a in range(0, N, size)
        ]
    )


def fitted(name, X, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        warnings.simplefilter("ignore", EndOfGridWarning)
        return METHODS[name].make(n_features_to_select=3, **ARGUMENTS.get(name, {})).fit(X, target)


ARGUMENTS = {"smr": {"sample_shape": (3, 4)}}
DAILY = ("anova", "mrmr", "sparge-lda", "srlsr", "smr", "mcfs", "l2-svm")


@pytest.mark.parametrize("name", daily(METHODS, *DAILY))
def test_a_method_has_one_block_of_a_dask_array_at_a_time(name, alive):
    X, y = dense_rows()
    (kind, *_) = METHODS[name].targets or ("class",)
    target = X[:, 0] + y if kind == "real" else y
    selector = fitted(name, counted(), target)
    assert alive.made >= BLOCKS
    assert alive.most == 1
    expected = fitted(name, Matrix.from_array(X, tile_rows=N // BLOCKS), target)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)


def exact(X):
    return knn(X, 5, block_rows=16).index


def approximate(X):
    return knn(X, 5, method="approx", recall=0.5, block_rows=16).index


def by_class(X):
    return neighbors_by_class(X, dense_rows()[1], 3, "cosine")


def discriminant(X):
    return local_discriminant(X, knn(X, 5), 0.1).F.toarray()


def hyperedges(X):
    return lasso_hyperedges(X, knn(X, 5)).H.toarray()


GRAPHS = [exact, approximate, by_class, discriminant, hyperedges]


@pytest.mark.parametrize(
    "graph", daily(GRAPHS, exact, hyperedges), ids=lambda graph: graph.__name__
)
def test_a_graph_has_one_block_of_a_dask_array_at_a_time(graph, alive):
    lazy = graph(Matrix.from_dask(counted()))
    assert alive.made >= BLOCKS
    assert alive.most == 1
    np.testing.assert_array_equal(lazy, graph(Matrix.from_array(dense_rows()[0])))


def test_a_sum_of_few_large_parts_has_one_block_at_a_time(alive):
    X = Matrix.from_dask(counted())
    total = X.sum(add_gram, 0, max_parts=4)
    assert alive.most == 1
    S = dense_rows()[0]
    np.testing.assert_allclose(total, S.T @ S, rtol=1e-12)


def add_gram(block, start, stop, total):
    product = block.T @ block
    return product if total is None else total + product


# --- blocks that this process holds -------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """How often each block was made, by its first row."""
    counts = Counter()
    monkeypatch.setattr(ALIVE, "add", lambda block: counts.update([block.tobytes()]) or block)
    engine.clear_cache()
    return counts


@pytest.mark.parametrize("name", ["laplacian", "srlsr", "relieff"])
def test_a_fit_makes_each_block_once(name, reads):
    """They were read for each pass. The two blocks of neighbors read each row twice."""
    X, y = dense_rows()
    selector = fitted(name, counted(), y)
    assert len(reads) == BLOCKS
    assert set(reads.values()) == {1}
    expected = fitted(name, Matrix.from_array(X, tile_rows=N // BLOCKS), y)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)


def test_the_blocks_leave_the_cache_with_their_matrix(reads):
    X = Matrix.from_dask(counted())
    part = X.take_columns([1, 2])
    _ = X.stats
    assert engine.workers.cached_bytes() == 8 * N * D
    del X
    assert engine.workers.cached_bytes() == 8 * N * D  # the part reads them
    _ = part @ np.ones(2)
    assert set(reads.values()) == {1}
    del part
    gc.collect()
    assert engine.workers.cached_bytes() == 0


def test_small_neighbors_make_one_tile(reads):
    """A task per chunk took longer than the work on it."""
    X = Matrix.from_dask(counted(size=1))  # 128 chunks
    assert len(X.row_tiles) == 64
    np.testing.assert_array_equal(X.rows(np.arange(N)), dense_rows()[0])
    S = sp.csr_array(dense_rows()[0])
    blocks = da.from_array(dense_rows()[0], chunks=(1, D)).map_blocks(sp.csr_array)
    X = Matrix.from_dask(blocks)
    assert len(X.row_tiles) == 64
    np.testing.assert_array_equal(X.rows(np.arange(N)).toarray(), S.toarray())
    wide = Matrix.from_dask(da.from_array(dense_rows()[0].T, chunks=(D, 1)))
    assert (len(wide.row_tiles), len(wide.column_tiles)) == (0, 64)
    np.testing.assert_array_equal(wide.columns(np.arange(N)).toarray(), S.toarray().T)


def test_chunks_of_the_size_of_a_tile_stay_alone():
    rows = TILE_VALUES.value // 2 + 1
    X = Matrix.from_dask(da.zeros((200 * rows, 2), chunks=(rows, 2)))
    assert len(X.row_tiles) == 200


# --- blocks that a cluster holds ------------------------------------------------------------------


@pytest.fixture(scope="module")
def held():
    """The rows in blocks that a cluster in this process holds, and its client."""
    with threads(set_as_default=False) as own:
        rows, _ = dense_rows()
        yield own, own.persist(da.from_array(rows, chunks=(8, 12)))


@pytest.fixture
def inputs(monkeypatch):
    """For each task of a map, how many blocks that a cluster holds it waits for."""
    counts, init = [], engine.executor.WithInputs.__init__

    def counting(self, fn, keys):
        counts.append(len(keys))
        init(self, fn, keys)

    monkeypatch.setattr(engine.executor.WithInputs, "__init__", counting)
    return counts


def test_a_task_of_a_sum_waits_for_one_held_block(held, inputs):
    client, persisted = held
    with engine.cluster(client):
        total = Matrix.from_dask(persisted).sum(add_gram, 0, max_parts=4)
        one_by_one = Matrix.from_dask(da.from_array(dense_rows()[0], chunks=(8, 12)))
        np.testing.assert_array_equal(total, one_by_one.sum(add_gram, 0, max_parts=4))
    assert max(inputs) == 1


@pytest.mark.parametrize(
    "graph", daily(GRAPHS, exact, hyperedges), ids=lambda graph: graph.__name__
)
def test_a_graph_of_held_blocks_has_not_a_block_per_chunk(graph, held, inputs):
    client, persisted = held
    with engine.cluster(client):
        computed = graph(Matrix.from_dask(persisted))
    pairs = persisted.numblocks[0] * (persisted.numblocks[0] - 1) // 2
    assert 0 < len(inputs) < pairs
    np.testing.assert_array_equal(computed, graph(Matrix.from_array(dense_rows()[0])))


@pytest.mark.parametrize(
    "graph",
    [
        lambda X, neighbors: stream_knn(X, 2, lambda *rows: None, method="approx"),
        lambda X, neighbors: local_discriminant(X, neighbors, 0.1),
        lambda X, neighbors: lasso_hyperedges(X, neighbors),
    ],
    ids=["approximate", "discriminant", "hyperedges"],
)
def test_held_blocks_that_do_not_fit_together_are_staged_first(graph, held, allow_memory):
    """These have all held blocks in a task, where they fit in one process."""
    client, persisted = held
    with engine.cluster(client):
        X = Matrix.from_dask(persisted)
        neighbors = knn(X, 5)
        allow_memory(8 * N * D - 1)
        with pytest.raises(engine.MemoryLimitError, match="stage it first"):
            graph(X, neighbors)


def test_a_value_that_all_blocks_need_is_computed_once_per_pass(alive):
    means = []

    def mean(block):
        means.append(1)
        return block.mean(axis=0)

    rows = da.from_array(dense_rows()[0], chunks=(8, 12))
    center = da.from_delayed(dask.delayed(mean)(rows), (D,), dtype=float)
    X = Matrix.from_dask(rows - center)
    S = dense_rows()[0] - dense_rows()[0].mean(axis=0)
    np.testing.assert_allclose(X.T @ np.ones(N), S.sum(axis=0), atol=1e-12)
    assert len(means) == 1
    np.testing.assert_array_equal(exact(X), exact(Matrix.from_array(S)))
