"""Approximate neighbors against the exact ones, and sketches against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import JGSC, UDFS, LaplacianScore, SparGE, graph
from bigfs.graph.approximate import cost, sample, search, sketch
from bigfs.graph.approximate.cost import EXACT_BELOW, MULTIPLY_ADD
from bigfs.graph.kernels import exact as exact_kernels
from bigfs.graph.kernels import sketch as sketch_kernels
from bigfs.graph.neighbors import stream_knn
from bigfs.graph.row_blocks import as_kernel_csr
from bigfs.matrix import Matrix


@pytest.fixture(scope="module")
def corpus():
    """3,000 × 4,000 text of 60 topics: 20 words per row of a Zipf vocabulary, 10 of the topic's own
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
def dear(change):
    """Make multiply-adds expensive. With so few rows, the cost per row would decide otherwise."""
    change(cost.SKETCH_MULTIPLY_ADD, 1e-6)
    change(cost.OTHER_MULTIPLY_ADD, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", pytest.param("euclidean", marks=pytest.mark.nightly)])
def test_approximate_neighbors_keep_their_promise(corpus, metric, dear):
    exact = graph.knn(Matrix.from_array(corpus), 10, metric=metric)
    found = graph.knn(Matrix.from_array(corpus), 10, metric=metric, method="approx", recall=0.9)
    kept = (
        np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact.index, found.index, strict=True)])
        / 10
    )
    # 384 rows × 10 neighbors say the recall of 3,000 rows to about 1 %
    assert kept == pytest.approx(found.info["recall"], abs=0.03)
    assert kept > 0.87
    assert found.info["products_kept"] < 1 / 3
    # candidates are compared exactly, so the distances have the bits of the exact graph
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


def sketch_of(X, residual_cosine=0.3, screen=SCREEN):
    return sketch.sketch_rows(
        exact_kernels.kernel_block(as_kernel_csr(X), 0),
        sketch.unscreened_index(screen),
        residual_cosine,
    )


def dense(A: sketch_kernels.Sketch, screen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows over the screen and over the other columns, as integers."""
    n = len(A.unit)
    whole = sp.csr_array(
        (A.data.astype(int), A.indices, A.indptr), shape=(n, len(screen))
    ).toarray()
    numbers, values = (
        (A.packed >> 8).astype(int),
        (A.packed & 255).astype(np.uint8).view(np.int8).astype(int),
    )
    others = np.zeros_like(whole)
    others[:, ~screen] = sp.csr_array(
        (values, numbers, A.other_indptr), shape=(n, np.sum(~screen))
    ).toarray()
    return whole, others


def definition(
    A: sketch_kernels.Sketch, screen: np.ndarray, cosine: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of all pairs: over the screen with the estimate, and over all columns."""
    inside, beside = dense(A, screen)
    expected = A.residual_estimate.astype(int)
    screened, whole = (
        inside @ inside.T + np.outer(expected, expected),
        inside @ inside.T + beside @ beside.T,
    )
    if cosine:
        return screened, whole
    near = [
        np.float32(s) * np.outer(A.unit, A.unit) - np.add.outer(A.half, A.half)
        for s in (screened, whole)
    ]
    bits = [part.view(np.int32).astype(int) for part in near]
    return tuple(np.where(part < 0, part ^ 0x7FFFFFFF, part) for part in bits)


def best_of(A, thresholds, q, screen, cosine):
    """Return the q best of each row among the passing pairs, equal scores by lower row."""
    screened, whole = definition(A, screen, cosine)
    passes = (screened >= np.minimum.outer(thresholds, thresholds)) & ~np.eye(
        len(thresholds), dtype=bool
    )
    score = np.where(passes & ((whole > 0) | (not cosine)), whole, -(1 << 40))
    order = np.argsort(-score, axis=1, kind="stable")[:, :q]
    found = np.full((len(thresholds), q), sketch_kernels.MAX_ROW_ID)
    found[:, : order.shape[1]] = np.where(
        np.take_along_axis(score, order, axis=1) > -(1 << 40), order, sketch_kernels.MAX_ROW_ID
    )
    return found


def thresholds_of(A, cosine, rank=20):
    """Return the rank-th largest score of each row with the others."""
    screened, _ = definition(A, SCREEN, cosine)
    np.fill_diagonal(screened, -(1 << 40))
    return np.maximum(
        np.sort(screened, axis=1)[:, -rank], 1 if cosine else 1 - sketch_kernels.MAX_ROW_ID
    ).astype(np.int32)


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize("q", [1, 9, 400])
def test_candidate_lists_are_the_best_passing_pairs_by_definition(words, cosine, q):
    A = sketch_of(words)
    thresholds = thresholds_of(A, cosine)
    np.testing.assert_array_equal(
        sketch.candidate_rows(sketch.within_block(A, thresholds, q, cosine).codes),
        best_of(A, thresholds, q, SCREEN, cosine),
    )


@pytest.mark.parametrize("cosine", [True, False])
def test_candidate_lists_do_not_depend_on_strips_and_lines(words, cosine, change):
    A = sketch_of(words)
    thresholds = thresholds_of(A, cosine)
    whole = sketch.within_block(A, thresholds, 9, cosine).codes
    for strip, share in [(16, 0.0), (33, 2.0), (300, 0.1), (120, 0.0)]:
        change(sketch.STRIP_ROWS, strip)
        change(sketch.DENSE_SHARE, share)
        np.testing.assert_array_equal(sketch.within_block(A, thresholds, 9, cosine).codes, whole)


@pytest.mark.parametrize("cosine", [True, False])
def test_lists_of_compared_blocks_equal_those_of_the_whole(words, cosine):
    A = sketch_of(words)
    thresholds, n = thresholds_of(A, cosine), len(A.unit)
    whole = sketch.within_block(A, thresholds, 9, cosine).codes
    halves = A.rows_between(0, 130), A.rows_between(130, n)
    one, other = (
        sketch.within_block(half, part, 9, cosine)
        for half, part in zip(halves, (thresholds[:130], thresholds[130:]), strict=True)
    )
    first, second = sketch.between_blocks(*halves, one, other, cosine)
    np.testing.assert_array_equal(np.vstack([first.codes, second.codes]), whole)
    second, first = sketch.between_blocks(*halves[::-1], other, one, cosine)
    np.testing.assert_array_equal(np.vstack([first.codes, second.codes]), whole)


@pytest.mark.parametrize("cosine", [True, False])
def test_thresholds_are_the_rank_scores_with_the_sample(words, cosine):
    A, sampled = sketch_of(words), np.arange(0, 300, 2)
    among = sketch_of(words[sampled])
    thresholds, reached = sketch.sample_thresholds(
        A, np.arange(300), among, sampled, [1, 7, 400], cosine
    )
    scores = definition(A, SCREEN, cosine)[0]
    np.fill_diagonal(scores, 0 if cosine else -sketch_kernels.MAX_ROW_ID)
    low, best = (
        1 if cosine else 1 - sketch_kernels.MAX_ROW_ID,
        -np.sort(-scores[:, sampled], axis=1),
    )
    np.testing.assert_array_equal(thresholds[:, 0], np.maximum(best[:, 0], low))
    np.testing.assert_array_equal(thresholds[:, 1], np.maximum(best[:, 6], low))
    assert np.all(thresholds[:, 2] == low)  # more than there are
    np.testing.assert_array_equal(
        reached, np.sum(best[:, :, None] >= thresholds[:, None, :], axis=1)
    )


@pytest.mark.parametrize("cosine", [True, False])
def test_screened_scores_equal_those_of_a_search(words, cosine):
    every, a, b = np.ones(120, bool), np.arange(0, 100), np.arange(200, 300)
    ours, theirs = (sketch_of(words[rows], 0.0, every) for rows in (a, b))
    within, _, squares, others = sketch_kernels.split_products(ours, theirs, SCREEN)
    scores = sketch.screened_scores(within, squares, others, 0.3, ours, theirs, cosine)
    np.testing.assert_array_equal(scores, definition(sketch_of(words), SCREEN, cosine)[0][a, b])


def test_find_marked_finds_all_marks(rng):
    for share in (0, 0.001, 0.1, 1):
        may = (rng.random(640) < share).astype(np.uint8)
        hits = np.empty(640, np.int64)
        count = sketch_kernels.find_marked(may, np.empty(80, np.int64), hits)
        np.testing.assert_array_equal(np.sort(hits[:count]), np.flatnonzero(may))


def test_merged_lists_have_empty_codes_last():
    parts = [
        (np.array([[9, 5, sketch.EMPTY_CODE]]), exact_kernels.empty_lists(1, 1)),
        (np.array([[7, sketch.EMPTY_CODE, sketch.EMPTY_CODE]]), exact_kernels.empty_lists(1, 1)),
    ]
    best, _ = sample._merge(parts)
    np.testing.assert_array_equal(best, [[9, 7, 5]])


@pytest.mark.slow
def test_waiting_pairs_are_completed_before_the_buffer_is_full(rng):
    # 1,500 × 1,500 pairs pass, more than the buffer holds
    X, screen = np.abs(rng.normal(size=(3000, 6))), np.arange(6) < 4
    A = sketch_of(X, 0.0, screen)
    thresholds = np.ones(3000, np.int32)
    halves = A.rows_between(0, 1500), A.rows_between(1500, 3000)
    lists = [sketch.within_block(half, thresholds[:1500], 3, True) for half in halves]
    met = np.vstack([best.codes for best in sketch.between_blocks(*halves, *lists, True)])
    np.testing.assert_array_equal(
        sketch.candidate_rows(met), best_of(A, thresholds, 3, screen, True)
    )


def test_a_higher_recall_costs_more(corpus, dear):
    few, more = (
        graph.knn(Matrix.from_array(corpus), 10, method="approx", recall=r).info
        for r in (0.5, 0.999)
    )
    for what in ("recall", "products_kept", "seconds"):
        assert few[what] < more[what]


def test_columns_enter_the_screen_by_worth_per_cost(corpus):
    X = Matrix.from_array(corpus)
    shares = search.column_shares(X)
    counts, squares = X.stats.nnz.astype(float), X.stats.sums_of_squares
    there = counts > 0
    cost = np.minimum(counts, sketch.DENSE_SHARE.value * 3000)[there] * counts[there] / 2
    order = np.argsort(shares[there], kind="stable")
    worth = (squares[there] ** 2 / cost)[order]
    assert np.all(np.diff(worth) <= 1e-6 * worth[:-1])
    np.testing.assert_allclose(
        np.sort(shares[there]), np.cumsum(cost[order]) / cost.sum(), atol=1e-8
    )
    assert shares.max() <= 1


def test_auto_goes_by_the_predicted_cost_and_says_why(corpus, change):
    X = Matrix.from_array(corpus)
    found = graph.knn(X, 5, method="auto")
    assert found.info["method"] == "exact"
    assert "multiply-adds" in found.info["why"]
    counts = np.bincount(corpus.indices, minlength=4000).astype(float)
    assert found.info["predicted"]["multiply_adds"] == (counts**2).sum() / 2
    change(EXACT_BELOW, 0.0)
    # so few rows that lists of candidates cost more than they save
    found = graph.knn(X, 5, method="auto", recall=0.9)
    assert found.info["method"] == "exact"
    assert "is predicted to take" in found.info["why"]
    change(MULTIPLY_ADD, 1e-6)
    found = graph.knn(X, 5, method="auto", recall=0.9)
    assert found.info["method"] == "approx"
    assert "more than" in found.info["why"]
    assert found.info["seconds"] < found.info["predicted"]["seconds"]


def test_a_selector_makes_the_graph_that_the_command_line_makes(corpus, change):
    X = Matrix.from_array(corpus)
    exact = LaplacianScore(n_neighbors=5, graph=graph.knn(X, 5)).fit(X).scores_
    np.testing.assert_array_equal(LaplacianScore(n_neighbors=5).fit(X).scores_, exact)
    change(EXACT_BELOW, 0.0)
    change(MULTIPLY_ADD, 1e-6)
    found = graph.knn(X, 5, method="auto")
    assert found.info["method"] == "approx"
    expected = LaplacianScore(n_neighbors=5, graph=found).fit(X).scores_
    scores = LaplacianScore(n_neighbors=5).fit(X).scores_
    np.testing.assert_array_equal(scores, expected)
    assert np.any(scores != exact)


@pytest.mark.parametrize(
    "selector",
    [
        LaplacianScore(),
        SparGE(embedding="lpp", n_components=2),
        SparGE(embedding="hsl", n_components=2),
        UDFS(max_iter=1),
        JGSC(max_iter=1),
    ],
)
@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
def test_selectors_let_the_predicted_cost_choose_their_graph(selector, rng, monkeypatch):
    methods = []

    def record(*args, method, **options):
        methods.append(method)
        return stream_knn(*args, method=method, **options)

    monkeypatch.setattr("bigfs.graph.neighbors.stream_knn", record)
    selector.set_params(n_features_to_select=2, n_neighbors=3).fit(rng.random((30, 6)))
    assert methods == ["auto"]


def test_dense_columns_all_make_candidates(rng):
    X = rng.normal(size=(500, 40))
    exact = graph.knn(Matrix.from_array(X), 5, metric="euclidean")
    found = graph.knn(Matrix.from_array(X), 5, metric="euclidean", method="approx", recall=0.99)
    assert found.info["columns"] == 40
    assert np.mean(found.index == exact.index) > 0.99


def test_rows_that_share_nothing_or_all_have_their_neighbors(rng):
    apart = graph.knn(Matrix.from_array(sp.eye_array(50, format="csr")), 3, method="approx")
    assert np.all(apart.index == -1)
    same = np.repeat(rng.random((12, 9)), 5, axis=0)
    found = graph.knn(Matrix.from_array(sp.csr_array(same)), 4, method="approx")
    assert np.all(found.index // 5 == np.arange(60)[:, None] // 5)
    np.testing.assert_allclose(found.distance, 0, atol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_zeros_that_are_stored_and_many_neighbors(words, metric):
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


def test_candidates_that_miss_the_recall_are_refused(rng, change):
    X = Matrix.from_array(rng.normal(size=(500, 40)))
    with pytest.raises(
        ValueError,
        match=r"5 candidates find .* but recall is 100.00%: lower the recall, raise candidates",
    ):
        graph.knn(X, 5, method="approx", recall=1.0, candidates=5)
    change(EXACT_BELOW, 0.0)
    found = graph.knn(X, 5, method="auto", recall=1.0, candidates=5)
    assert found.info["method"] == "exact"
    assert "5 candidates find" in found.info["why"]


def test_sketch_is_each_row_in_eight_bits(words):
    A = sketch_of(words)
    norm = np.linalg.norm(words.toarray().astype(float), axis=1)
    expected = np.minimum(
        words.toarray() * sketch_kernels.LEVELS / np.where(norm > 0, norm, 1)[:, None], 127
    ).astype(np.int8)
    inside, beside = dense(A, SCREEN)
    # a quotient on a whole number may round either way
    assert np.mean(inside + beside != expected) < 1e-3
    assert not inside[:, ~SCREEN].any()
    assert len(A.data) == np.count_nonzero(inside)
    np.testing.assert_array_equal(
        A.residual_estimate, np.floor(np.sqrt(0.3 * np.sum(beside**2, axis=1)))
    )
    np.testing.assert_allclose(A.unit * sketch_kernels.LEVELS, norm, rtol=1e-6)
    blocks = [
        exact_kernels.kernel_block(as_kernel_csr(words)[low:high], low)
        for low, high in [(0, 7), (7, 7), (7, 300)]
    ]
    pieces = [sketch.sketch_rows(block, sketch.unscreened_index(SCREEN), 0.3) for block in blocks]
    for field, whole_field in zip(sketch.concatenate(pieces), A, strict=True):
        np.testing.assert_array_equal(field, whole_field)
    for part, whole_part in zip(
        dense(A.rows_between(10, 25), SCREEN), (inside, beside), strict=True
    ):
        np.testing.assert_array_equal(part, whole_part[10:25])


def test_sums_of_sketches_do_not_overflow(rng):
    # equal rows have the largest product: a few columns each, and one column only
    X = np.repeat(np.vstack([np.eye(12), rng.random((20, 12)), -rng.random((20, 12))]), 3, axis=0)
    for screen in (np.arange(12) < 12, np.arange(12) < 6, np.arange(12) < 0):
        A = sketch_of(X, 1.0, screen)  # at the most that other columns may be expected to add
        assert np.all(A.residual_estimate >= 0)
        lists = sketch.within_block(A, np.ones(len(X), np.int32), 2, cosine=True)
        np.testing.assert_array_equal(
            sketch.candidate_rows(lists.codes)[::3], np.arange(len(X)).reshape(-1, 3)[:, 1:]
        )


def test_a_recall_without_meaning_is_refused(corpus):
    for options in ({"recall": 0.0}, {"recall": 1.5}, {"candidates": 3}, {"candidates": 0}):
        with pytest.raises(ValueError, match="candidates at least k=5"):
            graph.knn(Matrix.from_array(corpus), 5, method="approx", **options)
