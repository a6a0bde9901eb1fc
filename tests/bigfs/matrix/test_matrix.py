import pickle
import sys
import tracemalloc
from copy import copy

import dask.array as da
import numpy as np
import psutil
import pytest
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Centered, Matrix, gathering
from bigfs.matrix.gathering import hold_if_small
from bigfs.matrix.statistics import scale_hint
from tests.helpers.processes import until

S = sp.random_array(
    (60, 23), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=np.float32
)
MATRICES = {
    "one tile": lambda: Matrix.from_array(S),
    "small tiles": lambda: Matrix.from_array(S, tile_rows=7, tile_columns=5),
    "dense": lambda: Matrix.from_array(S.toarray(), tile_rows=13, tile_columns=4),
    "rows only": lambda: Matrix(
        S.shape, rows=Matrix.from_array(S, tile_rows=9).row_tiles, local=True
    ),
    "columns only": lambda: Matrix(
        S.shape, columns=Matrix.from_array(S, tile_columns=9).column_tiles, local=True
    ),
    "dask of csr": lambda: Matrix.from_dask(
        da.from_array(sp.csr_matrix(S), chunks=(17, 23), asarray=False)
    ),
    "dask of dense": lambda: Matrix.from_dask(da.from_array(S.toarray(), chunks=(17, 10))),
}


@pytest.fixture(params=MATRICES, ids=str)
def X(request):
    return MATRICES[request.param]()


def test_products_equal_the_dense_ones_in_one_pass_each(X, rng):
    W, V = rng.normal(size=(23, 3)), rng.normal(size=(60, 3))
    np.testing.assert_allclose(X @ W, S @ W, atol=1e-12)
    np.testing.assert_allclose(X.T @ V, S.T @ V, atol=1e-12)
    np.testing.assert_allclose(X @ W[:, 0], S @ W[:, 0], atol=1e-12)
    np.testing.assert_allclose(X.T @ V[:, 0], S.T @ V[:, 0], atol=1e-12)
    assert X.passes == 4


def test_products_with_sparse_factors_are_dense(X, rng):
    W, V = (sp.random_array((size, 3), density=0.3, rng=rng) for size in (23, 60))
    np.testing.assert_allclose(X @ W, S @ W.toarray(), atol=1e-12)
    np.testing.assert_allclose(X.T @ V, S.T @ V.toarray(), atol=1e-12)


def test_dot_test(X, rng):
    w, v = rng.normal(size=23), rng.normal(size=60)
    assert (X @ w) @ v == pytest.approx(w @ (X.T @ v), rel=1e-12)
    Xc = Centered(X)
    assert (Xc @ w) @ v == pytest.approx(w @ Xc.rmatmul(v), rel=1e-12)


def test_centered_equals_the_dense_centered(X, rng):
    dense = S.toarray().astype(float) - S.toarray().mean(axis=0, dtype=float)
    W, V = rng.normal(size=(23, 2)), rng.normal(size=(60, 2))
    Xc = Centered(X)
    np.testing.assert_allclose(Xc @ W, dense @ W, atol=1e-12)
    np.testing.assert_allclose(Xc.rmatmul(V), dense.T @ V, atol=1e-12)
    np.testing.assert_allclose(Xc.gram_times(W), dense.T @ (dense @ W), atol=1e-12)


def test_columns_come_in_the_order_asked_for_and_are_no_pass(X):
    index = [20, 3, 3, 11, 0]
    np.testing.assert_array_equal(X.columns(index).toarray(), S[:, index].toarray())
    assert X.columns([]).shape == (60, 0)
    assert X.passes == 0


def test_statistics(X):
    dense = S.toarray().astype(float)
    np.testing.assert_allclose(X.stats.sums, dense.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(X.stats.sums_of_squares, (dense**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(X.stats.nnz, (dense != 0).sum(axis=0))
    assert X.nnz == S.nnz
    assert X.passes == 1


@pytest.mark.parametrize("rows", [np.arange(0, 60, 7), np.arange(60) > 41], ids=["indices", "mask"])
def test_taken_rows(X, rows, rng):
    part = S[rows]
    taken = X.take_rows(rows)
    W, V = rng.normal(size=(23, 2)), rng.normal(size=(part.shape[0], 2))
    np.testing.assert_allclose(taken @ W, part @ W, atol=1e-12)
    np.testing.assert_allclose(taken.T @ V, part.T @ V, atol=1e-12)
    np.testing.assert_array_equal(taken.columns([2, 1]).toarray(), part[:, [2, 1]].toarray())


@pytest.mark.parametrize(
    ("rows", "most"), [(np.arange(80_000) % 3 > 0, 80_000 / 8), ([0, 7, 79_999], 3 * 8)]
)
def test_a_task_on_taken_rows_carries_at_most_a_bit_per_row(rows, most):
    """It carried 8 bytes per row, and a worker holds many tasks that wait."""
    tall = Matrix.from_array(sp.csr_array(([1.0], ([5], [1])), shape=(80_000, 2)), tile_columns=1)
    taken = tall.take_rows(rows)
    for tile in (*taken.column_tiles, *taken.row_tiles):
        assert len(pickle.dumps(tile.view)) < most + 300
        np.testing.assert_array_equal(engine.unshare(tile.view).numbers(), np.arange(80_000)[rows])


class ColumnsOnly:
    """A tile of columns that is never loaded whole."""

    start, stop, verified = 0, 23, True

    def columns(self, index):
        return sp.csc_array(S)[:, index]


def test_columns_of_taken_rows_are_read_alone():
    taken = Matrix(S.shape, columns=[ColumnsOnly()], local=True).take_rows(slice(10, 50))
    np.testing.assert_array_equal(taken.columns([7, 2]).toarray(), S[10:50][:, [7, 2]].toarray())
    inner = taken.take_rows([0, 39])
    np.testing.assert_array_equal(inner.columns([7]).toarray(), S[[10, 49]][:, [7]].toarray())


def test_by_columns_the_tiling_does_not_change_a_bit(rng):
    V = rng.normal(size=(60, 4))
    answers = [Matrix.from_array(S, tile_columns=size).T @ V for size in (1, 4, 23)]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
def test_the_layout_that_is_not_read_is_not_made(kind):
    """Both were made at once: SparGE held a csr copy that it never read."""
    S = kind(sp.random_array((3000, 500), density=0.2, rng=np.random.default_rng(0)))
    own, other = (0, 1) if kind is sp.csr_array else (1, 0)
    size = S.data.nbytes + S.indices.nbytes
    tracemalloc.start()
    X = Matrix.from_array(S)
    X.map(number_of_values, own)
    assert tracemalloc.get_traced_memory()[0] < 0.1 * size
    for _ in range(2):
        assert X.map(number_of_values, other) == [S.nnz]
        assert 0.9 * size < tracemalloc.get_traced_memory()[0] < 1.1 * size
    tracemalloc.stop()


def number_of_values(block, start, stop):
    return block.nnz


def test_a_missing_layout_is_named():
    rows_only, columns_only = MATRICES["rows only"](), MATRICES["columns only"]()
    with pytest.raises(ValueError, match="layout by columns"):
        rows_only.map(len, 1)
    with pytest.raises(ValueError, match="layout by rows"):
        columns_only.map(len, 0)
    with pytest.raises(ValueError, match="increasing"):
        rows_only.take_rows([3, 1])


@pytest.mark.process
def test_a_dask_cluster_gives_the_same_bits(rng):
    W, V = rng.normal(size=(23, 3)), rng.normal(size=(60, 3))
    here = MATRICES["dask of csr"]()
    serial = here @ W, here.T @ V
    with engine.cluster(workers=2, memory_limit="1GB"):
        there = MATRICES["dask of csr"]()
        seen: list[tuple[str, int, int]] = []
        with engine.progress(lambda *call: seen.append(call)):
            parts = there.map(_row_count, 0, label="counting")
        assert parts == [17, 17, 17, 9]
        assert [call[1] for call in seen] == [1, 2, 3, 4]
        np.testing.assert_array_equal(there @ W, serial[0])
        np.testing.assert_array_equal(there.T @ V, serial[1])


def _row_count(block, start, stop):
    assert block.shape[0] == stop - start
    return stop - start


def test_memory_is_refused_with_both_numbers():
    with pytest.raises(engine.MemoryLimitError, match=r"needs 1\.86 GiB .* 476\.84 MiB is allowed"):
        engine.require_memory(2_000_000_000, "the kernel", "500MB")


def test_no_scheduler_is_said_plainly():
    with (
        pytest.raises(
            engine.ClusterLostError, match=r"no Dask scheduler answers at " r"tcp://127\.0\.0\.1:1"
        ),
        engine.cluster("tcp://127.0.0.1:1", timeout="1s"),
    ):
        pass


class Counted:
    start, stop = 0, 60
    loads = 0

    def __init__(self, key):
        self.key = key

    def load(self):
        Counted.loads += 1
        return S


def test_a_tile_that_fits_is_read_once():
    engine.clear_cache()
    tile = Counted(("store", "rows", 0))
    for _ in range(3):
        assert engine.load(tile) is S
    assert Counted.loads == 1
    assert engine.is_cached(tile)
    engine.clear_cache()
    assert not engine.is_cached(tile)


def test_cache_is_cleared_where_a_worker_is_nearly_full(monkeypatch):
    engine.clear_cache()
    engine.get_cached(("a", 1), lambda: np.ones(10))
    for limit, stays in [(None, True), (1e15, True), (1.0, False)]:  # None: not a worker
        monkeypatch.setattr(engine.workers, "worker_limit", lambda limit=limit: limit)
        engine.workers.release_memory()
        assert bool(engine.workers._cache) == stays


pinned = []


def fill_and_free():
    """Free memory that the allocator holds, because a later allocation stays."""
    filled = [np.ones(1 << 20) for _ in range(40)]  # 336 MB
    pinned.append(np.ones(1 << 17))
    del filled
    return resident()


def resident():
    return psutil.Process().memory_info().rss


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_an_idle_worker_gives_freed_memory_back():
    with engine.cluster(workers=1, memory_limit="600MB") as client:
        (before,) = client.run(resident).values()
        (after,) = client.run(fill_and_free).values()
        assert after > engine.SHARES.value.relief * 600e6
        until(lambda: max(client.run(resident).values()) < before + 50e6, "the release of memory")


def test_what_does_not_fit_is_made_again(monkeypatch):
    engine.clear_cache()
    # room for 1,000 bytes
    monkeypatch.setattr(engine.workers, "worker_limit", lambda: engine.budget.IDLE + 4000)
    made = []
    for _ in range(2):
        for part in range(3):
            engine.get_cached(("a", part), lambda part=part: made.append(part) or np.full(60, part))
    assert made == [0, 1, 2, 2]  # two fit, and stay
    engine.get_cached(("b", 0), lambda: np.ones(100))
    assert list(engine.workers._cache) == [("b", 0)]
    engine.clear_cache()


def test_released_statistics_of_a_store_are_read_again():
    dense = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    stats, reads = Matrix.from_array(dense).stats, []
    X = Matrix(
        (3, 2), rows=Matrix.from_array(dense).row_tiles, stats=lambda: reads.append(1) or stats
    )
    X.release_stats()
    assert X.nnz == 3
    assert len(reads) == 1  # the number of non-zeros stays known
    np.testing.assert_array_equal(X.stats.sums, [4, 2])
    np.testing.assert_array_equal(X.means, [4 / 3, 2 / 3])
    assert len(reads) == 2
    computed = Matrix.from_array(dense)
    assert computed.nnz == 3
    computed.release_stats()
    assert computed.passes == 1
    assert computed.stats is computed.stats
    assert computed.passes == 1  # what no store holds stays


def test_a_copy_counts_its_own_passes(text):
    X = Matrix.from_array(text[0], tile_rows=20)
    part = X.take_columns([1, 4])
    twin, before = copy(X), X.passes
    _ = twin @ np.ones(X.shape[1])
    assert (X.passes, twin.passes) == (before, before + 1)
    _ = part @ np.ones(2)  # a pass over some columns is one over the whole
    assert (X.passes, twin.passes) == (before + 1, before + 1)


def test_a_small_matrix_is_the_same_in_memory(text, change):
    X = Matrix.from_array(text[0], tile_rows=20, tile_columns=9)
    assert hold_if_small(X) is X
    X.local = False
    assert hold_if_small(X) is X  # it is so small that its tasks do not matter
    change(gathering.MIN_NNZ, 0)
    here, before = hold_if_small(X), X.passes
    assert here.local
    assert all(tile.verified for tile in here.column_tiles)
    V = np.arange(float(X.shape[0]))
    np.testing.assert_array_equal(here.T @ V, text[0].T @ V)
    assert X.passes == here.passes == before + 1  # one number for both
    np.testing.assert_array_equal(
        here.columns([1, 30]).toarray(), sp.csc_array(text[0])[:, [1, 30]].toarray()
    )
    np.testing.assert_array_equal(here.means, X.means)
    by_rows = Matrix(X.shape, rows=X.row_tiles)
    assert hold_if_small(by_rows) is by_rows


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, np.asarray])
def test_one_tile_of_an_array_is_no_copy(rng, kind):
    X = kind(rng.random((20, 7)))
    matrix = Matrix.from_array(X)
    tile = (matrix.column_tiles if kind is sp.csc_array else matrix.row_tiles)[0]
    values, own = (getattr(block, "data", block) for block in (X, engine.load(tile)))
    assert np.shares_memory(np.asarray(values), np.asarray(own))


# --- wrong numbers and lengths --------------------------------------------------------------------


def layouts(X):
    whole = Matrix.from_array(X, tile_rows=5, tile_columns=4)
    return (
        whole,
        Matrix(X.shape, rows=whole.row_tiles, local=True),
        Matrix(X.shape, columns=whole.column_tiles, local=True),
    )


def test_columns_that_are_not_there_are_refused(matrix):
    for X in layouts(matrix):
        d = X.shape[1]
        for take in (X.columns, X.take_columns):
            for index in ([-1], [2, d]):
                with pytest.raises(
                    IndexError, match=rf"column {index[-1]} is out of range: .* {d}"
                ):
                    take(index)
            for index in (3, [[1]], [0.5], ["a"]):
                with pytest.raises(TypeError, match="columns must be a slice, a mask"):
                    take(index)
            with pytest.raises(IndexError, match="a mask of columns must have shape"):
                take([True])
            mask = np.arange(d) % 3 == 0
            assert take(mask).shape == (X.shape[0], mask.sum())
        with pytest.raises(ValueError, match="column numbers must be strictly increasing"):
            X.take_columns([3, 1])
        np.testing.assert_array_equal(X.columns([3, 1]).toarray(), matrix[:, [3, 1]].toarray())


def test_factors_of_the_wrong_length_are_refused(matrix):
    for X in layouts(matrix):
        n, d = X.shape
        for wrong in (d - 1, d + 1):
            with pytest.raises(ValueError, match=f"X has {d} columns, so the factor"):
                X @ np.ones((wrong, 2))
        for wrong in (n - 1, n + 1):
            with pytest.raises(ValueError, match=f"X has {n} rows, so the factor"):
                X.T @ np.ones(wrong)


def test_columns_are_taken_without_a_pass(matrix):
    X = Matrix.from_array(matrix, tile_rows=5)
    taken = X.take_columns([0, 4])
    assert X.passes == 0
    np.testing.assert_allclose(taken.stats.sums, matrix.sum(axis=0)[[0, 4]])


@pytest.mark.parametrize("size", [0, -2])
def test_tiles_without_rows_or_columns_are_refused(size):
    for name in ("tile_rows", "tile_columns"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            Matrix.from_array(np.eye(3), **{name: size})


def test_a_dask_array_without_rows_says_so():
    with pytest.raises(ValueError, match="X has no rows"):
        Matrix.from_dask(da.zeros((0, 3), chunks=(1, 3)))


def test_rare_words_and_moved_columns_have_the_scale_of_the_others(rng):
    X = rng.random((500, 40)) * (rng.random((500, 40)) < 0.3)
    X[:, 5] = np.where(np.arange(500) == 3, 0.5, 0)
    assert scale_hint(Matrix.from_array(sp.csr_array(X))) is None
    assert scale_hint(Matrix.from_array(X + 1e6 * (np.arange(40) == 2))) is None
