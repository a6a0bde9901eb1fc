"""Approximate neighbours against the exact ones, and sketches against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import graph
from bigfs.graph import approx, sample, sketch
from bigfs.graph.kernels import exact as exact_kernels
from bigfs.graph.kernels import sketch as sketch_kernels
from bigfs.graph.row_blocks import narrow
from bigfs.matrix import Matrix


@pytest.fixture(scope="module")
def corpus():
    """3,000 × 4,000 text of 60 topics: 20 words a row of a Zipf vocabulary, 10 of the topic's own
    40.
    """
    rng = np.random.default_rng(3)
    share = 1 / (3 + np.arange(4000))
    topic = rng.integers(60, size=3000)
    own = np.stack([rng.permutation(4000)[:40] for _ in range(60)])
    words = np.hstack(
        [
            rng.choice(4000, size=(3000, 20), p=share / share.sum()),
            own[topic][:, rng.integers(40, size=10)],
        ]
    )
    X = sp.coo_array(
        (np.ones(words.size), (np.repeat(np.arange(3000), 30), words.ravel())), shape=(3000, 4000)
    ).tocsr()
    X.sum_duplicates()
    idf = np.log(3000 / np.maximum(np.bincount(X.indices, minlength=4000), 1))
    return sp.csr_array((idf[X.indices] * X.data, X.indices, X.indptr), shape=X.shape).astype(
        np.float32
    )


@pytest.fixture
def dear(monkeypatch):
    """As if multiply-adds were all that costs: with so few rows, what each row costs would
    decide.
    """
    for name in ("SKETCH_SPARSE", "COMPLETED"):
        monkeypatch.setattr(f"bigfs.graph.cost.{name}", 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_approximate_neighbours_keep_their_promise(corpus, metric, dear):
    exact = graph.knn(Matrix.from_array(corpus), 10, metric=metric)
    found = graph.knn(Matrix.from_array(corpus), 10, metric=metric, method="approx", recall=0.9)
    kept = (
        np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact.index, found.index, strict=True)])
        / 10
    )
    # 384 rows × 10 neighbours say the recall of 3,000 rows to about 1 %
    assert kept == pytest.approx(found.info["recall"], abs=0.03)
    assert kept > 0.87
    assert found.info["products_kept"] < 1 / 3
    # what is found is compared exactly: the same bits as in the exact graph
    same = found.index == exact.index
    np.testing.assert_array_equal(found.distance[same], exact.distance[same])
    assert np.all(found.distance >= exact.distance)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_cut_does_not_change_a_bit_of_the_approximate_graph(corpus, metric, dear):
    whole = graph.knn(Matrix.from_array(corpus), 10, metric=metric, method="approx", recall=0.9)
    other = graph.knn(
        Matrix.from_array(corpus, tile_rows=1100),
        10,
        metric=metric,
        method="approx",
        recall=0.9,
        block_rows=700,
    )
    assert whole.info["share"] < 1
    np.testing.assert_array_equal(other.index, whole.index)
    np.testing.assert_array_equal(other.distance, whole.distance)
    assert other.info == whole.info


# --- sketches by their definition ---------------------------------------------------------------

SCREEN = np.arange(120) % 3 > 0


def made_of(X, alike=0.3, screen=SCREEN):
    return sketch.sketch(exact_kernels.side(narrow(X), 0), sketch.beside(screen), alike)


def dense_sketch(made: sketch.Sketch, screen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows over the screen, rows over the other columns), whole numbers."""
    n = len(made.unit)
    whole = sp.csr_array(
        (made.data.astype(int), made.indices, made.indptr), shape=(n, len(screen))
    ).toarray()
    numbers, values = (
        (made.packed >> 8).astype(int),
        (made.packed & 255).astype(np.uint8).view(np.int8).astype(int),
    )
    others = np.zeros_like(whole)
    others[:, ~screen] = sp.csr_array(
        (values, numbers, made.others), shape=(n, np.sum(~screen))
    ).toarray()
    return whole, others


def definition(
    made: sketch.Sketch, screen: np.ndarray, cosine: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(score over the screen with what is expected, score over all columns), of all pairs, as they
    are compared.
    """
    inside, beside = dense_sketch(made, screen)
    expected = made.expected.astype(int)
    screened, whole = (
        inside @ inside.T + np.outer(expected, expected),
        inside @ inside.T + beside @ beside.T,
    )
    if cosine:
        return screened, whole
    near = [
        np.float32(s) * np.outer(made.unit, made.unit) - np.add.outer(made.half, made.half)
        for s in (screened, whole)
    ]
    bits = [part.view(np.int32).astype(int) for part in near]
    return tuple(np.where(part < 0, part ^ 0x7FFFFFFF, part) for part in bits)


def best_of(made, asked, q, screen, cosine):
    """The q best of each row among the pairs that one of both asks for; equal scores by lower
    row.
    """
    screened, whole = definition(made, screen, cosine)
    passes = (screened >= np.minimum.outer(asked, asked)) & ~np.eye(len(asked), dtype=bool)
    score = np.where(passes & ((whole > 0) | (not cosine)), whole, -(1 << 40))
    order = np.argsort(-score, axis=1, kind="stable")[:, :q]
    found = np.full((len(asked), q), sketch_kernels.LAST)
    found[:, : order.shape[1]] = np.where(
        np.take_along_axis(score, order, axis=1) > -(1 << 40), order, sketch_kernels.LAST
    )
    return found


def asked_of(made, cosine, rank=20):
    """The score that `rank` others have, at least."""
    screened, _ = definition(made, SCREEN, cosine)
    np.fill_diagonal(screened, -(1 << 40))
    return np.maximum(
        np.sort(screened, axis=1)[:, -rank], 1 if cosine else 1 - sketch_kernels.LAST
    ).astype(np.int32)


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("q", [1, 9, 400])
def test_a_sketch_s_lists_are_the_best_that_pass_by_definition(words, cosine, q):
    made = made_of(words)
    asked = asked_of(made, cosine)
    np.testing.assert_array_equal(
        sketch.found(sketch.inside(made, asked, q, cosine).codes),
        best_of(made, asked, q, SCREEN, cosine),
    )


@pytest.mark.parametrize("cosine", [True, False])
def test_strips_and_lines_do_not_change_a_bit_of_a_sketch_s_lists(words, cosine, monkeypatch):
    made = made_of(words)
    asked = asked_of(made, cosine)
    whole = sketch.inside(made, asked, 9, cosine).codes
    for strip, share in [(16, 0.0), (33, 2.0), (300, 0.1), (120, 0.0)]:
        monkeypatch.setattr(sketch, "STRIP", strip)
        monkeypatch.setattr(sketch, "DENSE", share)
        np.testing.assert_array_equal(sketch.inside(made, asked, 9, cosine).codes, whole)


@pytest.mark.parametrize("cosine", [True, False])
def test_blocks_that_meet_have_the_lists_of_the_whole(words, cosine):
    made = made_of(words)
    asked, n = asked_of(made, cosine), len(made.unit)
    whole = sketch.inside(made, asked, 9, cosine).codes
    halves = made.cut(0, 130), made.cut(130, n)
    one, other = (
        sketch.inside(half, part, 9, cosine)
        for half, part in zip(halves, (asked[:130], asked[130:]), strict=True)
    )
    first, second = sketch.meet(*halves, one, other, cosine)
    np.testing.assert_array_equal(np.vstack([first.codes, second.codes]), whole)
    second, first = sketch.meet(*halves[::-1], other, one, cosine)
    np.testing.assert_array_equal(np.vstack([first.codes, second.codes]), whole)


@pytest.mark.parametrize("cosine", [True, False])
def test_what_a_row_asks_is_what_so_many_of_the_sample_reach(words, cosine):
    made, sampled = made_of(words), np.arange(0, 300, 2)
    among = made_of(words[sampled])
    asked, reached = sketch.asked(made, np.arange(300), among, sampled, [1, 7, 400], cosine)
    scores = definition(made, SCREEN, cosine)[0]
    np.fill_diagonal(scores, 0 if cosine else -sketch_kernels.LAST)
    low, best = 1 if cosine else 1 - sketch_kernels.LAST, -np.sort(-scores[:, sampled], axis=1)
    np.testing.assert_array_equal(asked[:, 0], np.maximum(best[:, 0], low))
    np.testing.assert_array_equal(asked[:, 1], np.maximum(best[:, 6], low))
    assert np.all(asked[:, 2] == low)  # more than there are
    np.testing.assert_array_equal(reached, np.sum(best[:, :, None] >= asked[:, None, :], axis=1))


@pytest.mark.parametrize("cosine", [True, False])
def test_pairs_by_themselves_score_as_in_a_search(words, cosine):
    every, a, b = np.ones(120, bool), np.arange(0, 100), np.arange(200, 300)
    ours, theirs = (made_of(words[rows], 0.0, every) for rows in (a, b))
    within, _, squares, others = sketch.split(ours, theirs, SCREEN)
    scores = sketch.scores(within, squares, others, 0.3, ours, theirs, cosine)
    np.testing.assert_array_equal(scores, definition(made_of(words), SCREEN, cosine)[0][a, b])


def test_hits_are_where_it_is_marked(rng):
    for share in (0, 0.001, 0.1, 1):
        may = (rng.random(640) < share).astype(np.uint8)
        hits = np.empty(640, np.int64)
        count = sketch_kernels._hits(may, np.empty(80, np.int64), hits)
        np.testing.assert_array_equal(np.sort(hits[:count]), np.flatnonzero(may))


def test_merged_lists_have_nobody_last():
    parts = [
        (np.array([[9, 5, sketch.NOBODY]]), exact_kernels.empty(1, 1)),
        (np.array([[7, sketch.NOBODY, sketch.NOBODY]]), exact_kernels.empty(1, 1)),
    ]
    best, _ = sample._merged(parts)
    np.testing.assert_array_equal(best, [[9, 7, 5]])


def test_what_waits_is_completed_before_there_is_too_much_of_it(rng):
    # 1,500 × 1,500 pairs pass: more than may wait
    X, screen = np.abs(rng.normal(size=(3000, 6))), np.arange(6) < 4
    made = made_of(X, 0.0, screen)
    asked = np.ones(3000, np.int32)
    halves = made.cut(0, 1500), made.cut(1500, 3000)
    lists = [sketch.inside(half, asked[:1500], 3, True) for half in halves]
    met = np.vstack([best.codes for best in sketch.meet(*halves, *lists, True)])
    np.testing.assert_array_equal(sketch.found(met), best_of(made, asked, 3, screen, True))


def test_a_higher_recall_costs_more(corpus, dear):
    few, more = (
        graph.knn(Matrix.from_array(corpus), 10, method="approx", recall=r).info
        for r in (0.5, 0.999)
    )
    for what in ("recall", "products_kept", "seconds"):
        assert few[what] < more[what]


def test_columns_come_in_by_their_worth_for_their_cost(corpus):
    X = Matrix.from_array(corpus)
    shares = approx.column_shares(X)
    counts, squares = X.stats.nnz.astype(float), X.stats.sums_of_squares
    there = counts > 0
    cost = np.minimum(counts, sketch.DENSE * 3000)[there] * counts[there] / 2
    order = np.argsort(shares[there], kind="stable")
    worth = (squares[there] ** 2 / cost)[order]
    assert np.all(np.diff(worth) <= 1e-6 * worth[:-1])
    np.testing.assert_allclose(
        np.sort(shares[there]), np.cumsum(cost[order]) / cost.sum(), atol=1e-8
    )
    assert shares.max() <= 1


def test_auto_goes_by_the_predicted_cost_and_says_why(corpus, monkeypatch):
    X = Matrix.from_array(corpus)
    found = graph.knn(X, 5, method="auto")
    assert found.info["method"] == "exact"
    assert "multiply-adds" in found.info["why"]
    counts = np.bincount(corpus.indices, minlength=4000).astype(float)
    assert found.info["predicted"]["multiply_adds"] == (counts**2).sum() / 2
    monkeypatch.setattr("bigfs.graph.cost.EXACT_BELOW", 0.0)
    # so few rows that lists of candidates cost more than they save
    found = graph.knn(X, 5, method="auto", recall=0.9)
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


def test_rows_that_share_nothing_or_all_have_their_neighbours(rng):
    apart = graph.knn(Matrix.from_array(sp.eye_array(50, format="csr")), 3, method="approx")
    assert np.all(apart.index == -1)
    same = np.repeat(rng.random((12, 9)), 5, axis=0)
    found = graph.knn(Matrix.from_array(sp.csr_array(same)), 4, method="approx")
    assert np.all(found.index // 5 == np.arange(60)[:, None] // 5)
    np.testing.assert_allclose(found.distance, 0, atol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_zeros_that_are_stored_and_many_neighbours(words, metric):
    X = words.copy()
    X.data[X.indptr[7] : X.indptr[8]] = 0
    X.data[X.indptr[9]] = 0
    exact = graph.knn(Matrix.from_array(X), 40, metric=metric)
    found = graph.knn(Matrix.from_array(X), 40, metric=metric, method="approx")
    assert found.info["candidates"] == 60
    both = [
        len(np.intersect1d(a[a >= 0], b[b >= 0]))
        for a, b in zip(found.index, exact.index, strict=True)
    ]
    assert np.sum(both) > 0.9 * np.sum(exact.index >= 0)
    assert np.all(found.index[7] == -1) == (metric == "cosine")


def test_candidates_that_miss_the_recall_are_refused(rng, monkeypatch):
    X = Matrix.from_array(rng.normal(size=(500, 40)))
    with pytest.raises(
        ValueError,
        match=r"5 candidates find .* but recall is 100.00%: lower the recall, raise candidates",
    ):
        graph.knn(X, 5, method="approx", recall=1.0, candidates=5)
    monkeypatch.setattr("bigfs.graph.cost.EXACT_BELOW", 0.0)
    found = graph.knn(X, 5, method="auto", recall=1.0, candidates=5)
    assert found.info["method"] == "exact"
    assert "5 candidates find" in found.info["why"]


def test_a_sketch_is_each_row_in_eight_bits(words):
    made = made_of(words)
    norm = np.linalg.norm(words.toarray().astype(float), axis=1)
    expected = np.minimum(
        words.toarray() * sketch_kernels.LEVELS / np.where(norm > 0, norm, 1)[:, None], 127
    ).astype(np.int8)
    inside, beside = dense_sketch(made, SCREEN)
    # a quotient on a whole number may round either way
    assert np.mean(inside + beside != expected) < 1e-3
    assert not inside[:, ~SCREEN].any()
    assert len(made.data) == np.count_nonzero(inside)
    np.testing.assert_array_equal(made.expected, np.floor(np.sqrt(0.3 * np.sum(beside**2, axis=1))))
    np.testing.assert_allclose(made.unit * sketch_kernels.LEVELS, norm, rtol=1e-6)
    sides = [
        exact_kernels.side(narrow(words)[low:high], low) for low, high in [(0, 7), (7, 7), (7, 300)]
    ]
    pieces = [sketch.sketch(side, sketch.beside(SCREEN), 0.3) for side in sides]
    for field, whole_field in zip(sketch.joined(pieces), made, strict=True):
        np.testing.assert_array_equal(field, whole_field)
    for part, whole_part in zip(
        dense_sketch(made.cut(10, 25), SCREEN), (inside, beside), strict=True
    ):
        np.testing.assert_array_equal(part, whole_part[10:25])


def test_sums_of_sketches_do_not_overflow(rng):
    # equal rows have the largest product: a few columns each, and one column only
    X = np.repeat(np.vstack([np.eye(12), rng.random((20, 12)), -rng.random((20, 12))]), 3, axis=0)
    for screen in (np.arange(12) < 12, np.arange(12) < 6, np.arange(12) < 0):
        made = made_of(X, 1.0, screen)  # at the most that other columns may be expected to add
        assert np.all(made.expected >= 0)
        lists = sketch.inside(made, np.ones(len(X), np.int32), 2, cosine=True)
        np.testing.assert_array_equal(
            sketch.found(lists.codes)[::3], np.arange(len(X)).reshape(-1, 3)[:, 1:]
        )


def test_a_recall_without_meaning_is_refused(corpus):
    for asked in ({"recall": 0.0}, {"recall": 1.5}, {"candidates": 3}, {"candidates": 0}):
        with pytest.raises(ValueError, match="candidates at least k=5"):
            graph.knn(Matrix.from_array(corpus), 5, method="approx", **asked)
