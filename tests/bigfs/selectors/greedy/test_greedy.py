"""mRMR, RRPC, JMI and CMIM against their criteria computed for every feature at every step."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import f_classif, f_regression
from sklearn.preprocessing import KBinsDiscretizer

from bigfs import CMIM, JMI, MRMR, RRPC, Matrix, storage
from bigfs.engine import MemoryLimitError
from bigfs.result import Status
from bigfs.selectors.greedy import search
from bigfs.selectors.greedy.correlations import Correlations
from tests.helpers.stores import write_svmlight

M = 9


@pytest.fixture
def sample(rng):
    """80 × 24 with zeros, in three classes; columns 12 to 23 nearly repeat the first ones."""
    y = rng.integers(0, 3, 80)
    Z = rng.normal(size=(80, 12)) + np.linspace(0.1, 1.3, 12) * y[:, None]
    X = np.hstack([Z, Z + 0.2 * rng.normal(size=(80, 12))]) * (rng.random((80, 24)) < 0.8)
    X[:, 20] = 1
    return X, y


def binned(X, n_bins):
    """Zero is bin n_bins, and the other values are cut by scikit-learn."""
    B = np.full(X.shape, n_bins)
    for b, x in zip(B.T, X.T, strict=True):
        there = x != 0
        if there.any():
            cut = KBinsDiscretizer(n_bins, encode="ordinal", strategy="uniform", dtype=np.float64)
            b[there] = (
                cut.fit_transform(x[there, None])[:, 0] if len(np.unique(x[there])) > 1 else 0
            )
    return B


def mutual(a, b):
    """I(a; b)."""
    p = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(p, (a, b), 1 / len(a))
    q = np.outer(p.sum(axis=1), p.sum(axis=0))
    return (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum()


def conditional(a, y, given):
    """I(a; y | given)."""
    return sum((given == v).mean() * mutual(a[given == v], y[given == v]) for v in np.unique(given))


def chosen(relevance, pairs, criterion, m=M):
    """The features of the largest criterion of their relevance and a row of their terms."""
    selected = [int(np.argmax(relevance))]
    while len(selected) < m:
        left = [j for j in range(len(relevance)) if j not in selected]
        values = [criterion(relevance[j], [pairs[j][i] for i in selected]) for j in left]
        selected.append(left[int(np.argmax(values))])
    return selected


def difference(relevance, terms):
    return relevance - np.mean(terms)


def quotient(relevance, terms):
    return relevance / max(np.mean(terms), 1e-12)


SCHEMES = {"difference": difference, "quotient": quotient}


def information(X, y, n_bins=4):
    B = binned(X, n_bins).T
    relevance = np.array([mutual(y, b) for b in B])
    return relevance, np.array([[mutual(a, b) for b in B] for a in B])


def correlations(X):
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(np.corrcoef(X, rowvar=False)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_mrmr_of_information(sample, scheme):
    X, y = sample
    selector = MRMR(n_features_to_select=M, scheme=scheme, n_bins=4).fit(sp.csr_array(X), y)
    relevance, pairs = information(X, y)
    expected = chosen(relevance, pairs, SCHEMES[scheme])
    assert selector.selected_.tolist() == expected
    last, before = expected[-1], expected[:-1]
    value = SCHEMES[scheme](relevance[last], pairs[last][before])
    assert selector.criterion_[[0, -1]] == pytest.approx([relevance.max(), value], rel=1e-9)
    assert selector.result_.status is Status.FINISHED


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("real", [False, True])
def test_mrmr_of_f(sample, scheme, real):
    X, y = sample
    target = y + X[:, 3] if real else y
    varies = np.arange(24) != 20
    relevance = np.zeros(24)
    relevance[varies] = (f_regression if real else f_classif)(X[:, varies], target)[0]
    expected = chosen(relevance, correlations(X), SCHEMES[scheme])
    selector = MRMR(n_features_to_select=M, relevance="f", scheme=scheme).fit(X, target)
    assert selector.selected_.tolist() == expected


@pytest.mark.parametrize(
    ("relevance", "scheme"), [("mutual-info", "difference"), ("f", "quotient")]
)
def test_the_scheme_follows_the_unit_of_the_relevance(sample, relevance, scheme):
    X, y = sample
    own, named = (
        MRMR(n_features_to_select=6, relevance=relevance, scheme=name, n_bins=4).fit(X, y)
        for name in ("auto", scheme)
    )
    assert own.selected_.tolist() == named.selected_.tolist()
    assert own.criterion_.tolist() == named.criterion_.tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rrpc(sample, n_classes):
    X, y = sample
    y = np.minimum(y, n_classes - 1)
    known = np.arange(80) % 3 == 0
    if n_classes == 2:
        relevance = np.array([correlations(np.c_[x, y[known]])[0, 1] for x in X[known].T])
    else:
        means = np.array([X[known & (y == c)].mean(axis=0) for c in range(3)])[y[known]]
        relevance = means.std(axis=0) / np.where(X[known].std(axis=0) > 0, X[known].std(axis=0), 1)
    relevance[20] = 0
    expected = chosen(relevance, correlations(X), difference)
    selector = RRPC(n_features_to_select=M).fit(Matrix.from_array(X), np.where(known, y, -1))
    assert selector.selected_.tolist() == expected


def added(X, y):
    B = binned(X, 4).T
    return np.array([[conditional(a, y, b) for b in B] for a in B])


def test_jmi_and_cmim(sample):
    X, y = sample
    relevance, terms = information(X, y)[0], added(X, y)
    found = [
        clone(s).set_params(n_features_to_select=M, n_bins=4).fit(X, y) for s in (JMI(), CMIM())
    ]
    assert found[0].selected_.tolist() == chosen(relevance, terms, lambda _, t: np.mean(t))
    assert found[1].selected_.tolist() == chosen(relevance, terms, lambda r, t: min(r, *t, r))


def test_jmi_sees_what_only_a_pair_says(rng):
    a, b = rng.integers(0, 2, (2, 200))
    y = a ^ b
    a = np.where(rng.random(200) < 0.3, y, a)
    X = np.column_stack([rng.integers(0, 2, (200, 3)), b, a])
    assert JMI(n_features_to_select=2, n_bins=1).fit(X, y).selected_.tolist() == [4, 3]


GREEDY = [
    MRMR(n_bins=4),
    MRMR(scheme="quotient", n_bins=4),
    MRMR(relevance="f", scheme="difference"),
    MRMR(relevance="f", scheme="quotient"),
    RRPC(),
    JMI(n_bins=4),
    CMIM(n_bins=4),
]


def test_lines_of_the_last_part_are_made_once_while_it_grows(sample, monkeypatch, change):
    X = sample[0]
    change(search.MAX_LINE_BYTES, 3 * 8 * len(X))
    pairs = Correlations(np.zeros(len(X), dtype=np.int64))
    columns, read = search._Columns(Matrix.from_array(X), pairs, 12), []
    read_lines = columns._read_lines
    monkeypatch.setattr(columns, "_read_lines", lambda c: read.extend(c) or read_lines(c))
    steps = ((1, 0, 1), (3, 0, 3), (4, 3, 4), (6, 0, 3), (6, 3, 6), (6, 4, 6), (8, 6, 8))
    for m, first, stop in (*steps, (8, 1, 3), (9, 6, 9)):
        lines = columns.lines(np.arange(m), first, stop)
        expected = pairs.lines(pairs.prepare(sp.csc_array(X[:, first:stop])))
        np.testing.assert_array_equal(lines, expected)
    assert read == list(range(9))
    columns.lines(np.arange(9), 3, 6)  # a part between is not kept
    columns.lines(np.arange(9), 6, 9)
    assert read == [*range(9), 3, 4, 5]


@pytest.mark.parametrize("selector", GREEDY, ids=str)
class TestGreedy:
    def test_neither_tiles_nor_memory_matter(self, sample, selector, change):
        X, y = sample
        selector = clone(selector).set_params(n_features_to_select=M)
        expected = selector.fit(X, y).criterion_, selector.selected_
        both = Matrix.from_array(sp.csr_array(X), tile_columns=5, tile_rows=11)
        matrices = (
            both,
            Matrix(both.shape, rows=both.row_tiles, local=True),
            Matrix(both.shape, columns=both.column_tiles, local=True),
            da.from_array(X, chunks=(30, 24)),
        )
        change(search.BATCH, 2)
        change(search.MAX_LINE_BYTES, 3 * 8 * 80)
        for share in (0.1, 0):  # 0: nothing fits in memory
            change(search.MEMORY_SHARE, share)
            for matrix in matrices:
                selector.fit(matrix, y)
                np.testing.assert_array_equal(selector.selected_, expected[1])
                np.testing.assert_allclose(selector.criterion_, expected[0], rtol=1e-9, atol=1e-12)
            assert (selector.result_.stats["gathered"] == 0) is (share == 0)

    def test_lines_that_fit_are_made_once(self, sample, selector, monkeypatch, change):
        X, y = sample
        read, limit = [], 3
        change(search.BATCH, 2)
        change(search.MAX_LINE_BYTES, limit * 8 * len(X))
        read_lines = search._Columns._read_lines

        def noted(columns, chosen):
            read.extend(chosen.tolist())
            return read_lines(columns, chosen)

        monkeypatch.setattr(search._Columns, "_read_lines", noted)
        chosen = clone(selector).set_params(n_features_to_select=M).fit(X, y).selected_.tolist()
        assert 2 * limit < M
        assert [read.count(j) for j in chosen[:limit]] == [1] * limit

    def test_choices_are_a_prefix_and_the_scores_rank_them(self, sample, selector):
        X, y = sample
        few, many = (clone(selector).set_params(n_features_to_select=m).fit(X, y) for m in (4, 10))
        assert few.selected_.tolist() == many.selected_[:4].tolist()
        assert many.scores_[many.selected_].tolist() == [1 - k / 10 for k in range(10)]
        assert many.scores_[~many.support_].tolist() == [0] * 14

    def test_equal_features_are_chosen_by_index(self, sample, selector):
        X, y = sample
        twice = np.hstack([X[:, :6], X[:, :6]])
        selected = clone(selector).set_params(n_features_to_select=1).fit(twice, y).selected_
        assert selected[0] < 6


def test_columns_are_gathered_only_where_they_can_decide(rng):
    y = np.arange(400) % 2
    informative = rng.random((400, 5)) + y[:, None]
    X = sp.csc_array(sp.hstack([informative, sp.random_array((400, 3000), density=0.02, rng=rng)]))
    selector = MRMR(n_features_to_select=5, relevance="f", scheme="difference").fit(X, y)
    assert set(selector.selected_) == set(range(5))
    assert selector.result_.stats["gathered"] == search.AHEAD
    assert selector.result_.stats["passes"] == 2  # the F statistics and the column statistics


def test_a_store_gives_the_same(tmp_path):
    source = write_svmlight(tmp_path / "X.svm", 90)
    corpus = storage.open(storage.stage(source, tmp_path / "X.zarr"))
    rows = corpus.X.rows(np.arange(90))
    for selector in GREEDY:
        selector = clone(selector).set_params(n_features_to_select=M)
        expected = selector.fit(rows, corpus.y).selected_.tolist()
        assert selector.fit(corpus.X, corpus.y).selected_.tolist() == expected


def test_a_table_of_too_many_bins_is_refused(sample, allow_memory):
    X, y = sample
    allow_memory(100_000)
    with pytest.raises(MemoryLimitError, match="a table of 1001 bins per feature needs"):
        JMI(n_bins=1000).fit(X, y)


@pytest.mark.parametrize("target", ["classes", "real"])
def test_redundancy_decides_among_features_that_explain_the_target_wholly(rng, target):
    y = np.repeat([0.0, 1, 2, 3], 10)
    # x1 and x2 repeat x0; x3 separates the classes as well, in another order
    X = np.column_stack([y, 2 * y, y + 5, np.array([1.0, 3, 0, 2])[y.astype(int)]])
    X = np.column_stack([X, rng.random((40, 2))])
    if target == "real":
        X[:, 3] = rng.random(40)
    selector = MRMR(relevance="f", n_features_to_select=3, target=target).fit(X, y)
    assert np.isfinite(selector.criterion_).all()
    if target == "classes":
        np.testing.assert_array_equal(selector.selected_, [0, 3, 1])


@pytest.mark.parametrize("selector", [RRPC(), MRMR(relevance="f")])
def test_one_label_per_class_tells_no_feature_from_another(rng, selector):
    X, y = rng.normal(size=(60, 20)), np.full(60, -1)
    y[:3] = [0, 1, 2]
    with pytest.raises(ValueError, match=r"tells no feature from another, .* infinite"):
        selector.fit(Matrix.from_array(X), y)
