"""Approximate neighbours against the exact ones, and sketches against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import graph
from bigfs.graph import approx, kernel, sketch
from bigfs.graph.rows import canonical
from bigfs.matrix import Matrix


@pytest.fixture(scope="module")
def corpus():
    """3,000 × 4,000 text of 60 topics: 20 words a row of a Zipf vocabulary, 10 of the topic's own 40."""
    rng = np.random.default_rng(3)
    share = 1 / (3 + np.arange(4000))
    topic = rng.integers(60, size=3000)
    own = np.stack([rng.permutation(4000)[:40] for _ in range(60)])
    words = np.hstack([rng.choice(4000, size=(3000, 20), p=share / share.sum()), own[topic][:, rng.integers(40, size=10)]])
    X = sp.coo_array((np.ones(words.size), (np.repeat(np.arange(3000), 30), words.ravel())), shape=(3000, 4000)).tocsr()
    X.sum_duplicates()
    idf = np.log(3000 / np.maximum(np.bincount(X.indices, minlength=4000), 1))
    return sp.csr_array((idf[X.indices] * X.data, X.indices, X.indptr), shape=X.shape).astype(np.float32)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_approximate_neighbours_keep_their_promise(corpus, metric):
    exact = graph.knn(Matrix.from_array(corpus), 10, metric=metric)
    found = graph.knn(Matrix.from_array(corpus), 10, metric=metric, method="approx", recall=0.9)
    kept = np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact.index, found.index, strict=True)]) / 10
    # 512 rows × 10 neighbours say the recall of 3,000 rows to about 1 %
    assert kept == pytest.approx(found.info["recall"], abs=0.03)
    assert kept > 0.87
    assert found.info["products_kept"] < 1 / 3
    # what is found is compared exactly: the same bits as in the exact graph
    same = found.index == exact.index
    np.testing.assert_array_equal(found.distance[same], exact.distance[same])
    assert np.all(found.distance >= exact.distance)


def test_the_cut_does_not_change_a_bit_of_the_approximate_graph(corpus):
    whole = graph.knn(Matrix.from_array(corpus), 10, method="approx", recall=0.9)
    other = graph.knn(Matrix.from_array(corpus, tile_rows=1100), 10, method="approx", recall=0.9, block_rows=700)
    np.testing.assert_array_equal(other.index, whole.index)
    np.testing.assert_array_equal(other.distance, whole.distance)
    assert other.info == whole.info


def dense_lists(made: sketch.Sketch, columns: int, q: int, cosine: bool) -> np.ndarray:
    """The q best of each row by the definition of a sketch's score; equal scores by lower row."""
    rows = sp.csr_array((made.data, made.indices, made.indptr), shape=(len(made.unit), columns)).toarray().astype(np.float32)
    score = rows @ rows.T
    if not cosine:
        score = score * (made.unit[:, None] * made.unit) - (made.half[:, None] + made.half)
    np.fill_diagonal(score, -np.inf)
    order = np.argsort(-score, axis=1, kind="stable")[:, :q]
    kept = np.take_along_axis(score, order, axis=1) > (0 if cosine else -np.inf)
    return np.where(kept, order, sketch.LAST)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("q", [1, 9, 400])
def test_a_sketch_s_lists_are_the_best_by_definition(words, metric, q):
    made = sketch.sketch(kernel.side(canonical(words), 0), np.arange(120) > 0)
    found = sketch.found(sketch.inside(made, q, 120, metric == "cosine"))
    expected = np.full_like(found, sketch.LAST)
    wanted = dense_lists(made, 120, q, metric == "cosine")
    expected[:, : wanted.shape[1]] = wanted
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_halves_strips_and_lines_do_not_change_a_bit_of_a_sketch_s_lists(words, metric, monkeypatch):
    made = sketch.sketch(kernel.side(canonical(words), 0), np.arange(120) > 0)
    whole = sketch.inside(made, 9, 120, metric == "cosine")
    for start, strip, dense in [(7, 16, 0.0), (50, 33, 2.0), (120, 300, 0.1)]:
        monkeypatch.setattr(sketch, "START", start)
        monkeypatch.setattr(sketch, "STRIP", strip)
        monkeypatch.setattr(sketch, "DENSE", dense)
        np.testing.assert_array_equal(sketch.inside(made, 9, 120, metric == "cosine"), whole)


def test_merged_lists_have_nobody_last():
    parts = [
        ([np.array([[9, 5, sketch.NOBODY]])], kernel.empty(1, 1)),
        ([np.array([[7, sketch.NOBODY, sketch.NOBODY]])], kernel.empty(1, 1)),
    ]
    (best,), _ = approx._merged(parts)
    np.testing.assert_array_equal(best, [[9, 7, 5]])


def test_what_waits_is_handed_over_before_there_is_too_much_of_it(rng):
    # 1,500 × 1,500 pairs enter both lists: more than may wait
    X = canonical(np.abs(rng.normal(size=(3000, 6))))
    made = sketch.sketch(kernel.side(X, 0), np.ones(6, bool))
    halves = made.cut(0, 1500), made.cut(1500, 3000)
    empty = [np.full((1500, 3), sketch.NOBODY) for _ in halves]
    one, other = sketch.meet(*halves, *empty, 6, True)
    other_way = sketch.meet(*halves[::-1], *empty, 6, True)
    np.testing.assert_array_equal(one, other_way[1])
    np.testing.assert_array_equal(other, other_way[0])


def test_a_higher_recall_keeps_more_terms(corpus):
    few, more = (graph.knn(Matrix.from_array(corpus), 10, method="approx", recall=r).info for r in (0.5, 0.97))
    assert few["share"] < more["share"]
    assert few["columns"] < more["columns"]
    assert few["products_kept"] < more["products_kept"]


def test_columns_come_in_by_their_worth_for_their_cost(corpus):
    X = Matrix.from_array(corpus)
    shares = approx.column_shares(X)
    counts, squares = X.stats.counts.astype(float), X.stats.squares
    there = counts > 0
    cost = np.minimum(counts, sketch.DENSE * 3000)[there] * counts[there] / 2
    order = np.argsort(shares[there], kind="stable")
    worth = (squares[there] ** 1.5 / cost)[order]
    assert np.all(np.diff(worth) <= 1e-6 * worth[:-1])
    np.testing.assert_allclose(np.sort(shares[there]), np.cumsum(cost[order]) / cost.sum(), atol=1e-8)
    assert shares.max() <= 1


def test_auto_goes_by_the_predicted_cost_and_says_why(corpus, monkeypatch):
    X = Matrix.from_array(corpus)
    found = graph.knn(X, 5, method="auto")
    assert found.info["method"] == "exact"
    assert "multiply-adds" in found.info["why"]
    counts = np.bincount(corpus.indices, minlength=4000).astype(float)
    assert found.info["predicted"]["multiply_adds"] == (counts**2).sum() / 2
    monkeypatch.setattr("bigfs.graph.cost.EXACT_BELOW", 0.0)
    found = graph.knn(X, 5, method="auto", recall=0.9)  # so few rows that lists of candidates cost more than they save
    assert found.info["method"] == "exact"
    assert "is predicted to take" in found.info["why"]
    monkeypatch.setattr("bigfs.graph.cost.SPARSE", 1e-6)
    found = graph.knn(X, 5, method="auto", recall=0.9)
    assert found.info["method"] == "approx"
    assert "more than" in found.info["why"]
    assert found.info["seconds"] < found.info["predicted"]["seconds"]


def test_dense_columns_all_make_candidates(rng):
    X = rng.normal(size=(500, 40))
    exact = graph.knn(Matrix.from_array(X), 5, metric="euclidean")
    found = graph.knn(Matrix.from_array(X), 5, metric="euclidean", method="approx", recall=0.99)
    assert found.info["columns"] == 40
    assert np.mean(found.index == exact.index) > 0.99


def test_candidates_that_miss_the_recall_are_refused(rng, monkeypatch):
    X = Matrix.from_array(rng.normal(size=(500, 40)))
    with pytest.raises(ValueError, match=r"5 candidates keep .* not 100.00%: ask for a lower recall or more candidates"):
        graph.knn(X, 5, method="approx", recall=1.0, candidates=5)
    monkeypatch.setattr("bigfs.graph.cost.EXACT_BELOW", 0.0)
    found = graph.knn(X, 5, method="auto", recall=1.0, candidates=5)
    assert found.info["method"] == "exact"
    assert "5 candidates keep" in found.info["why"]


def test_a_sketch_is_each_row_in_eight_bits(words):
    whole = kernel.side(canonical(words), 0)
    kept = np.arange(120) % 3 > 0
    made = sketch.sketch(whole, kept)
    rows = sp.csr_array((made.data, made.indices, made.indptr), shape=words.shape)
    norm = np.linalg.norm(words.toarray().astype(float), axis=1)
    expected = np.minimum(words.toarray() * sketch.LEVELS / np.where(norm > 0, norm, 1)[:, None], 127).astype(np.int8) * kept
    assert np.mean(rows.toarray() != expected) < 1e-3  # a quotient on a whole number may round either way
    assert rows.nnz == np.count_nonzero(rows.toarray())
    np.testing.assert_allclose(made.unit * sketch.LEVELS, norm, rtol=1e-6)
    pieces = [sketch.sketch(kernel.side(canonical(words)[low:high], low), kept) for low, high in [(0, 7), (7, 7), (7, 300)]]
    for field, whole_field in zip(sketch.joined(pieces), made, strict=True):
        np.testing.assert_array_equal(field, whole_field)
    part = made.cut(10, 25)
    np.testing.assert_array_equal(sp.csr_array((part.data, part.indices, part.indptr), shape=(15, 120)).toarray(), rows.toarray()[10:25])


def test_sums_of_sketches_do_not_overflow(rng):
    # equal rows have the largest product: a few columns each, and one column only
    X = np.repeat(np.vstack([np.eye(12), rng.random((20, 12)), -rng.random((20, 12))]), 3, axis=0)
    made = sketch.sketch(kernel.side(canonical(X), 0), np.ones(12, bool))
    lists = sketch.inside(made, 2, 12, cosine=True)
    np.testing.assert_array_equal(sketch.found(lists)[::3], np.arange(len(X)).reshape(-1, 3)[:, 1:])


def test_a_recall_without_meaning_is_refused(corpus):
    for asked in ({"recall": 0.0}, {"recall": 1.5}, {"candidates": 3}):
        with pytest.raises(ValueError, match="candidates at least k=5"):
            graph.knn(Matrix.from_array(corpus), 5, method="approx", **asked)
