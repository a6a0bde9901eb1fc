"""Neighbors against scikit-learn's brute force, weights and Laplacians against dense formulas."""

import itertools
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian as scipy_laplacian
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from bigfs import engine, graph
from bigfs.graph.approximate.cost import GraphCost
from bigfs.graph.row_blocks import round_robin, row_alignment, row_blocks
from bigfs.matrix import Matrix


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 7, 299])
def test_neighbors_equal_brute_force(words, metric, k):
    found = graph.knn(Matrix.from_array(words), k, metric=metric)
    dense = words.toarray().astype(float)
    D = pairwise_distances(dense, metric=metric)
    if metric == "cosine":
        D[dense @ dense.T <= 0] = np.inf  # nothing in common
    np.fill_diagonal(D, np.inf)
    # the oracle's √(a² − 2ab + b²) loses half the digits at distance 0
    np.testing.assert_allclose(found.distance, np.sort(D, axis=1)[:, :k], atol=1e-7)
    i, m = np.nonzero(found.index >= 0)
    np.testing.assert_array_equal(found.index >= 0, np.isfinite(found.distance))
    np.testing.assert_allclose(D[i, found.index[i, m]], found.distance[i, m], atol=1e-7)
    assert len(np.unique(i * 300 + found.index[i, m])) == len(i)  # nobody twice


def test_neighbors_of_dense_rows_equal_scikit_learn(rng):
    X = rng.normal(size=(200, 16))
    found = graph.knn(Matrix.from_array(X), 10, metric="euclidean")
    distance, index = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(X).kneighbors()
    np.testing.assert_array_equal(found.index, index)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_cut_does_not_change_a_bit(words, metric):
    whole = graph.knn(Matrix.from_array(words), 6, metric=metric)
    by_dask = Matrix.from_dask(da.from_array(sp.csr_matrix(words), chunks=(90, 120), asarray=False))
    for X, rows in [
        (Matrix.from_array(words, tile_rows=37), 50),
        (Matrix.from_array(words), 299),
        (by_dask, 64),
    ]:
        other = graph.knn(X, 6, metric=metric, block_rows=rows)
        np.testing.assert_array_equal(other.index, whole.index)
        np.testing.assert_array_equal(other.distance, whole.distance)


def test_permuting_rows_permutes_neighbors(words, rng):
    order = rng.permutation(300)
    here, there = (
        graph.knn(Matrix.from_array(words), 5),
        graph.knn(Matrix.from_array(words[order]), 5),
    )
    np.testing.assert_array_equal(there.distance, here.distance[order])


def test_strips_and_dense_lines_do_not_change_a_bit(words, change):
    whole = graph.knn(Matrix.from_array(words), 6)
    for strip, dense in [(16, 0.0), (33, 2.0), (300, 0.3)]:
        change(graph.kernels.exact.STRIP_ROWS, strip)
        change(graph.kernels.exact.DENSE_SHARE, dense)
        other = graph.knn(Matrix.from_array(words), 6)
        np.testing.assert_array_equal(other.index, whole.index)
        np.testing.assert_array_equal(other.distance, whole.distance)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_duplicates_are_at_zero_and_ties_go_to_the_lower_index(metric, rng):
    X = sp.csr_array(np.repeat(rng.random((4, 9)), 5, axis=0))  # rows 0–4 are equal, and so on
    found = graph.knn(Matrix.from_array(X), 4, metric=metric, block_rows=3)
    assert np.all(found.distance == 0)
    others = [[j for j in range(i // 5 * 5, i // 5 * 5 + 5) if j != i] for i in range(20)]
    np.testing.assert_array_equal(found.index, others)


def test_empty_and_isolated_rows_have_no_cosine_neighbors():
    X = sp.csr_array(np.array([[1, 2, 0, 0], [0, 0, 0, 0], [2, 1, 0, 0], [0, 0, 0, 5.0]]))
    found = graph.knn(Matrix.from_array(X), 2)
    np.testing.assert_array_equal(found.index, [[2, -1], [-1, -1], [0, -1], [-1, -1]])
    np.testing.assert_allclose(
        found.distance, [[0.2, np.inf], [np.inf, np.inf], [0.2, np.inf], [np.inf, np.inf]]
    )
    parts = graph.components(graph.affinity(found))
    assert (parts.count, parts.isolated) == (3, 2)
    np.testing.assert_array_equal(np.sort(parts.sizes), [1, 1, 2])


def test_what_comes_unsorted_repeated_or_as_integers_is_put_in_order(words):
    coarse = sp.csr_array(np.rint(9 * words.toarray()).astype(np.int8))
    twice = sp.coo_array(
        (np.r_[coarse.data, coarse.data] / 2, np.tile(coarse.tocoo().coords, 2)), shape=coarse.shape
    )
    messy = sp.csr_array(
        (
            twice.data,
            twice.coords[1],
            np.r_[0, np.cumsum(np.bincount(twice.coords[0], minlength=300))],
        ),
        shape=coarse.shape,
    )
    order = np.argsort(twice.coords[0], kind="stable")
    messy.data, messy.indices = twice.data[order], twice.coords[1][order]
    here, there = graph.knn(Matrix.from_array(coarse), 5), graph.knn(Matrix.from_array(messy), 5)
    np.testing.assert_array_equal(here.index, there.index)
    np.testing.assert_array_equal(here.distance, there.distance)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"k": 300}, "between 1 and 299"),
        ({"k": 0}, "between 1 and 299"),
        ({"metric": "jaccard"}, "cosine"),
        ({"method": "magic"}, "exact"),
    ],
)
def test_bad_requests_are_refused(words, asked, message):
    with pytest.raises(ValueError, match=message):
        graph.knn(Matrix.from_array(words), **asked)


def test_a_layout_by_columns_is_refused(words):
    with pytest.raises(ValueError, match="layout by rows"):
        graph.knn(Matrix(words.shape, columns=Matrix.from_array(words).column_tiles, local=True), 3)


def test_more_rows_than_fit_are_refused(words, allow_memory):
    allow_memory(500_000)
    with pytest.raises(engine.MemoryLimitError, match="300 rows at a time"):
        graph.knn(Matrix.from_array(words), 3)


@pytest.mark.parametrize("n", [200, 700])
def test_few_or_many_long_dense_rows_fit(rng, allow_memory, n):
    d = 10_000  # 4096 rows of them would take 328 MB, and 8.2 GB are asked for a block of those
    X = rng.random((n, d), dtype=np.float32)
    # in float32, scikit-learn's distances are too coarse to order close neighbors
    exact = NearestNeighbors(n_neighbors=4, metric="cosine").fit(X.astype(np.float64))
    allow_memory(1_000_000_000)
    found = graph.knn(Matrix.from_array(X), 4).index
    np.testing.assert_array_equal(found, exact.kneighbors()[1])


@pytest.mark.parametrize(("row_bytes", "rows"), [(100.0, 4096), (4097.0, 2048), (1e9, 1)])
def test_rows_start_at_powers_of_two_of_at_most_16_mib(row_bytes, rows):
    assert row_alignment(GraphCost(0, 0, row_bytes, 0)) == rows


# --- on Dask ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """A tile in a file, as a store has them."""

    start: int
    stop: int
    path: str

    def load(self):
        return sp.csr_array(sp.load_npz(self.path))[self.start : self.stop]


@dataclass(frozen=True)
class Killer:
    """A sink that kills its worker at the third block, once."""

    marker: str

    def __call__(self, start, stop, index, distance):
        marker = Path(self.marker)
        if start == 100 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index, distance


@pytest.mark.process
def test_a_killed_worker_leaves_the_same_graph(words, tmp_path):
    sp.save_npz(tmp_path / "X.npz", words)
    X = Matrix(
        words.shape,
        rows=[Saved(a, min(a + 70, 300), str(tmp_path / "X.npz")) for a in range(0, 300, 70)],
    )
    whole = graph.knn(Matrix.from_array(words), 6)
    with engine.cluster(workers=2, memory_limit="1GB"):
        parts, _ = graph.stream_knn(X, 6, Killer(str(tmp_path / "killed")), block_rows=50)
    assert (tmp_path / "killed").exists()
    index, distance = (np.concatenate(part) for part in zip(*parts, strict=True))
    np.testing.assert_array_equal(index, whole.index)
    np.testing.assert_array_equal(distance, whole.distance)


def test_progress_counts_blocks_their_meetings_and_their_results(words):
    seen = []
    with engine.progress(lambda *call: seen.append(call)):
        graph.knn(Matrix.from_array(words), 6, block_rows=100)
    # the blocks, then a round of pairs after the other, then the results
    assert seen == [("neighbors", done, 3 + 3 + 3) for done in (3, 4, 5, 6, 9)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_in_rounds_every_two_blocks_meet_once(count):
    made = round_robin(count)
    assert sorted(pair for meetings in made for pair in meetings) == list(
        itertools.combinations(range(count), 2)
    )
    assert all(
        len({block for pair in meetings for block in pair}) == 2 * len(meetings)
        for meetings in made
    )


# --- weights and Laplacians ---------------------------------------------------------------------


def dense_affinity(found, weights, width):
    n = len(found.index)
    A = np.zeros((n, n))
    for i in range(n):
        for j, d in zip(found.index[i], found.distance[i], strict=True):
            if j >= 0:
                A[i, j] = {
                    "binary": 1.0,
                    "cosine": 1 - d,
                    "heat": np.exp(-(d**2) / (2 * width**2)),
                }[weights]
    return np.maximum(A, A.T)


@pytest.mark.parametrize("weights", ["binary", "cosine", "heat"])
def test_affinity_equals_the_dense_formula(words, weights):
    found = graph.knn(Matrix.from_array(words), 6)
    mean = found.distance[found.index >= 0].mean()
    A = graph.affinity(found, weights).toarray()
    np.testing.assert_allclose(A, dense_affinity(found, weights, mean), rtol=1e-12)


def test_affinity_refuses_what_has_no_meaning(words):
    found = graph.knn(Matrix.from_array(words), 3, metric="euclidean")
    with pytest.raises(ValueError, match="cosine metric"):
        graph.affinity(found, "cosine")
    with pytest.raises(ValueError, match="binary"):
        graph.affinity(found, "gaussian")


def test_heat_of_duplicates_only_is_one(rng):
    found = graph.knn(
        Matrix.from_array(np.repeat(rng.random((2, 4)), 4, axis=0)), 3, metric="euclidean"
    )
    assert np.all(graph.affinity(found, "heat").data == 1)


@pytest.mark.parametrize("kind", ["plain", "normalized"])
def test_laplacians_equal_scipy(words, kind):
    A = graph.affinity(graph.knn(Matrix.from_array(words), 4), "cosine")
    dense = A.toarray()
    expected = scipy_laplacian(dense, normed=kind == "normalized")
    np.testing.assert_allclose(graph.laplacian(A, kind).toarray(), expected, atol=1e-12)
    values = np.linalg.eigvals(expected)
    assert np.sum(np.abs(values) < 1e-9) == graph.components(A).count
    with pytest.raises(ValueError, match="plain"):
        graph.laplacian(A, "signless")


def test_a_block_s_numbers_are_of_32_bits_however_it_is_cut(words):
    """64 bits would take half as much memory again, and a kernel of their own."""
    wide = words.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for block in row_blocks(Matrix.from_array(wide, tile_rows=70), 128):
        loaded = block.load()
        assert loaded.indices.dtype == loaded.indptr.dtype == np.int32
        np.testing.assert_array_equal(loaded.toarray(), words.toarray()[block.start : block.stop])
