"""What other libraries ask of a `Matrix`: length, rows by index, names, a lazy Dask array."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bigfs import ANOVA, SRLSR, Matrix, SparGE
from bigfs.matrix.tiles import BlockTile


class Names:
    """Names that count how many of them are read."""

    def __init__(self, size):
        self.size, self.read = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read += len(index)
        return np.array([f"term{j}" for j in index], dtype=object)


def named(X, **sizes):
    """X with lazy names, in tiles."""
    tiled = Matrix.from_array(X, **sizes)
    names = Names(X.shape[1])
    return Matrix(
        X.shape,
        rows=tiled.row_tiles,
        columns=tiled.column_tiles,
        local=True,
        feature_names=names,
        meta=tiled.meta,
    ), names


@pytest.mark.parametrize(
    "rows",
    [slice(7, 50), slice(None), np.arange(60) % 7 == 0, [3, 8, 59], np.array([], dtype=int)],
    ids=["slice", "all", "mask", "list", "none"],
)
def test_rows_by_index_are_taken_without_reading(rows, matrix, rng):
    S = sp.csr_array(rng.random((60, 9)))
    X = Matrix.from_array(S, tile_rows=11, tile_columns=4)
    part = X[rows]
    assert isinstance(part, Matrix)
    assert len(X) == 60
    assert len(part) == S[rows].shape[0]
    assert X.passes == part.passes == 0
    np.testing.assert_array_equal(part.columns([8, 0]).toarray(), S[rows].toarray()[:, [8, 0]])
    np.testing.assert_array_equal(X[rows, ...].columns([5]).toarray(), S[rows].toarray()[:, [5]])
    gathered = X.rows(rows)
    assert gathered.format == "csr"
    np.testing.assert_array_equal(gathered.toarray(), S[rows].toarray())


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([2, 1], ValueError, "strictly increasing"),
        ([1, 1], ValueError, "strictly increasing"),
        ([0, 60], IndexError, "row 60 is out of range: there are 60"),
        ([-1, 3], IndexError, "row -1 is out of range"),
        (np.ones(59, dtype=bool), IndexError, r"mask of rows must have shape \(60,\)"),
        (5, TypeError, "a list of row numbers"),
        ([0.5], TypeError, "a list of row numbers"),
        ((slice(None), [0]), IndexError, "X.columns"),
    ],
)
def test_bad_rows_are_refused(rows, error, words):
    X = Matrix.from_array(np.ones((60, 3)), tile_rows=7)
    with pytest.raises(error, match=words):
        X[rows]


def test_matrix_does_not_become_an_array_unseen():
    X = Matrix.from_array(np.ones((4, 3)))
    with pytest.raises(TypeError, match="never loaded whole"):
        np.asarray(X)
    with pytest.raises(TypeError, match="never loaded whole"):
        LinearSVC().fit(X, [0, 1, 0, 1])
    with pytest.raises(TypeError, match="list of row numbers"):
        list(X)


def test_scikit_learn_searches_over_a_matrix_as_over_an_array(text):
    X, y = text
    grid = {"linearsvc__C": [0.1, 10.0], "anova__n_features_to_select": [4, 12]}
    folds = KFold(3, shuffle=True, random_state=0)
    peer = make_pipeline(SelectKBest(f_classif), LinearSVC(random_state=0))
    expected = GridSearchCV(
        peer, {"linearsvc__C": [0.1, 10.0], "selectkbest__k": [4, 12]}, cv=folds
    ).fit(X, y)
    found = GridSearchCV(make_pipeline(ANOVA(), LinearSVC(random_state=0)), grid, cv=folds).fit(
        Matrix.from_array(X, tile_rows=17, tile_columns=13), y
    )
    by_size = {
        (p["linearsvc__C"], p["anova__n_features_to_select"]): score
        for p, score in zip(
            found.cv_results_["params"], found.cv_results_["mean_test_score"], strict=True
        )
    }
    for p, score in zip(
        expected.cv_results_["params"], expected.cv_results_["mean_test_score"], strict=True
    ):
        assert by_size[p["linearsvc__C"], p["selectkbest__k"]] == pytest.approx(score, abs=1e-12)
    assert found.predict(X).shape == y.shape


# --- Dask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True], ids=["csr", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lazy_rows_are_the_tiles(dense, dtype, rng):
    S = sp.random_array((40, 11), density=0.3, format="csr", rng=rng, dtype=dtype)
    X = Matrix.from_array(S.toarray() if dense else S, tile_rows=7, tile_columns=4)
    lazy = X.to_dask()
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == ((7, 7, 7, 7, 7, 5), (11,))
    assert lazy.dtype == dtype
    assert sp.issparse(lazy._meta) != dense
    with dask.config.set(scheduler="sync"):
        blocks = [lazy.blocks[i].compute() for i in range(6)]
        taken = X[S.sum(axis=1) > 1].to_dask().compute()
        again = Matrix.from_dask(lazy)
    for block in blocks:
        assert isinstance(block, np.ndarray if dense else sp.csr_array)
        assert block.dtype == dtype
    whole = np.concatenate([b if dense else b.toarray() for b in blocks])
    np.testing.assert_array_equal(whole, S.toarray())
    expected = S.toarray()[S.sum(axis=1) > 1]
    np.testing.assert_array_equal(taken if dense else taken.toarray(), expected)
    assert type(again.meta) is type(X.meta)
    assert again.meta.dtype == dtype


def test_lazy_rows_need_the_layout_by_rows():
    X = Matrix((4, 2), columns=Matrix.from_array(np.ones((4, 2))).column_tiles, local=True)
    with pytest.raises(ValueError, match="layout by rows"):
        X.to_dask()


def test_tiles_of_another_type_are_converted_to_what_the_lazy_array_says():
    tiles = [BlockTile(0, 2, np.eye(2, dtype=np.float32)), BlockTile(2, 4, sp.csc_array(np.eye(2)))]
    blocks = Matrix((4, 2), rows=tiles, local=True).to_dask().compute(scheduler="sync")
    assert isinstance(blocks, sp.csr_array)
    assert blocks.dtype == np.float64
    np.testing.assert_array_equal(blocks.toarray(), np.tile(np.eye(2), (2, 1)))


def test_blocks_of_unknown_size_are_counted_once(rng):
    S = sp.csr_array(rng.random((30, 6)))
    cuts = [(0, 11), (11, 11), (11, 30)]
    lazy = da.concatenate(
        [
            da.from_delayed(dask.delayed(S[a:b]), (np.nan, np.nan), meta=sp.csr_array((0, 0)))
            for a, b in cuts
        ],
        allow_unknown_chunksizes=True,
    )
    X = Matrix.from_dask(lazy)
    assert X.shape == (30, 6)
    assert [(t.start, t.stop) for t in X.row_tiles] == [(0, 11), (11, 30)]
    np.testing.assert_allclose(X @ np.ones(6), S.sum(axis=1))


def test_dask_data_frame_is_fitted_and_transformed_by_name(text):
    X, y = text
    frame = pd.DataFrame(X.toarray(), columns=[f"gene{j}" for j in range(X.shape[1])])
    lazy = dd.from_pandas(frame, npartitions=4)
    expected = ANOVA(n_features_to_select=5).fit(frame, y)
    selector = ANOVA(n_features_to_select=5).fit(lazy, dd.from_pandas(pd.Series(y), npartitions=2))
    np.testing.assert_allclose(selector.scores_, expected.scores_, rtol=1e-6)
    assert list(selector.get_feature_names_out()) == list(expected.get_feature_names_out())
    assert list(selector.feature_names_in_) == list(frame.columns)
    out = selector.transform(lazy)
    assert isinstance(out, dd.DataFrame)
    pd.testing.assert_frame_equal(
        out.compute(scheduler="sync"), frame[list(expected.get_feature_names_out())]
    )
    with pytest.raises(ValueError, match="in the same order"):
        selector.transform(lazy[list(frame.columns[::-1])])


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["both", "rows"])
def test_only_the_chosen_names_are_read(layout, text):
    X, y = text
    matrix, names = named(X, tile_rows=40)
    if layout == "rows":
        matrix = matrix[np.arange(len(y)) % 5 > 0]
        y = y[np.arange(len(y)) % 5 > 0]
    selector = ANOVA(n_features_to_select=6).fit(matrix, y)
    assert names.read == 0
    expected = [f"term{j}" for j in np.sort(selector.selected_)]
    assert list(selector.get_feature_names_out()) == expected
    assert names.read == 6
    with pytest.raises(ValueError, match="length equal to number of features"):
        selector.get_feature_names_out(["one", "name"])
    assert list(selector.get_feature_names_out([f"t{j}" for j in range(80)])) == [
        f"t{j}" for j in np.sort(selector.selected_)
    ]


def test_names_follow_the_last_fit(text):
    X, y = text
    selector = ANOVA(n_features_to_select=2).fit(named(X)[0], y)
    selector.fit(X, y)
    assert list(selector.get_feature_names_out()) == [f"x{j}" for j in np.sort(selector.selected_)]
    selector.fit(pd.DataFrame(X.toarray(), columns=[f"c{j}" for j in range(80)]), y)
    assert list(selector.get_feature_names_out()) == [f"c{j}" for j in np.sort(selector.selected_)]
    selector.fit(named(X)[0], y)
    assert not hasattr(selector, "feature_names_in_")
    assert selector.get_feature_names_out()[0].startswith("term")
    path = SparGE().fit_path(named(X)[0], y, sizes=[3])
    assert list(path[3].get_feature_names_out()) == [f"term{j}" for j in np.sort(path[3].selected_)]


def test_pandas_output_of_a_matrix_is_sparse_and_named(text):
    X, y = text
    matrix, _ = named(X, tile_rows=50)
    selector = SRLSR(n_features_to_select=4, tol=0.1).set_output(transform="pandas").fit(matrix, y)
    frame = selector.transform(matrix)
    assert list(frame.columns) == [f"term{j}" for j in np.sort(selector.selected_)]
    assert all(isinstance(t, pd.SparseDtype) for t in frame.dtypes)
    np.testing.assert_array_equal(
        frame.sparse.to_dense().to_numpy(), X[:, np.sort(selector.selected_)].toarray()
    )
