"""Matrices that lie in files, and lazy ones of other libraries: read by tiles, never as a whole."""

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr
from dask import delayed
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest

from bigfs import ANOVA, MRMR, Matrix, ReliefF, SelectorCV, SparGE
from bigfs.matrix import construction
from bigfs.matrix.construction import readable
from tests.helpers.daily import daily

N, D = 60, 12


@pytest.fixture
def labeled():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, D)) < 0.5, np.round(rng.random((N, D)), 3), 0)
    y = np.arange(N) % 2
    X[:, 3] += y
    return X, y


@pytest.fixture(autouse=True)
def small_tiles(change):
    change(construction.TILE_VALUES, 120)


def in_zarr(X, path, chunks):
    array = zarr.create_array(path / "x.zarr", shape=X.shape, chunks=chunks, dtype=X.dtype)
    array[:] = X
    return zarr.open_array(path / "x.zarr", mode="r")


def in_hdf5(X, path, chunks):
    with h5py.File(path / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=chunks)
    return h5py.File(path / "x.h5", "r")["X"]


@pytest.mark.parametrize("written", daily([in_zarr, in_hdf5], in_zarr))
@pytest.mark.parametrize(
    ("chunks", "tiles"),
    daily(
        [
            ((4, 12), [8] * 7 + [4]),  # whole chunks, of at most the 10 rows that a tile may have
            ((7, 5), [7] * 8 + [4]),
            ((60, 3), []),  # chunks of columns
            ((1, 1), [10] * 6),
        ],
        ((7, 5), [7] * 8 + [4]),
        ((60, 3), []),
    ),
)
def test_a_matrix_in_a_file_is_read_by_tiles(written, chunks, tiles, labeled, tmp_path):
    X, y = labeled
    stored = written(X, tmp_path, chunks)
    matrix = Matrix.from_dask(readable(stored))
    assert [t.stop - t.start for t in matrix.row_tiles] == tiles
    assert [t.stop - t.start for t in matrix.column_tiles] == ([] if tiles else [3] * 4)
    for selector in (ANOVA(), SparGE(n_features_to_select=3), MRMR(n_features_to_select=3)):
        expected = clone(selector).fit(X, y)
        np.testing.assert_allclose(selector.fit(stored, y).scores_, expected.scores_, rtol=1e-9)
        chosen = selector.transform(stored)
        assert isinstance(chosen, da.Array)
        np.testing.assert_array_equal(chosen.compute(), expected.transform(X))


def test_a_large_chunk_is_cut(labeled, tmp_path):
    X, _ = labeled
    matrix = Matrix.from_dask(readable(in_zarr(np.tile(X, (3, 1)), tmp_path, (90, 12))))
    assert len(matrix.row_tiles) == 18
    with pytest.raises(ValueError, match="two dimensions, samples and features; got 1"):
        readable(in_hdf5(X[0], tmp_path, None))


def test_only_the_tiles_of_a_pass_are_in_memory(labeled, tmp_path, monkeypatch):
    """A stored array is asked for slices, one per tile."""
    X, y = labeled
    asked = []
    stored = in_hdf5(X, tmp_path, (10, 12))
    get = h5py.Dataset.__getitem__
    monkeypatch.setattr(
        h5py.Dataset, "__getitem__", lambda self, i: asked.append(i) or get(self, i)
    )
    ANOVA().fit(stored, y)
    assert [(rows.start, rows.stop) for rows, _ in asked if rows.stop] == [
        (a, a + 10) for a in range(0, 60, 10)
    ]


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array, sp.csr_array])
def test_chunks_of_columns_are_tiles_of_columns(form, labeled):
    X, y = labeled
    blocks = [form(X[:, a : a + 5]) for a in range(0, D, 5)]
    lazy = da.concatenate(
        [da.from_delayed(delayed(b), b.shape, meta=b[:0]) for b in blocks], axis=1
    )
    matrix = Matrix.from_dask(lazy)
    assert not matrix.row_tiles
    assert [(t.start, t.stop) for t in matrix.column_tiles] == [(0, 5), (5, 10), (10, 12)]
    V, W = np.ones((N, 2)), np.ones((D, 2))
    np.testing.assert_allclose(matrix.T @ V, X.T @ V)
    np.testing.assert_allclose(matrix @ W, X @ W)
    np.testing.assert_array_equal(matrix.columns([11, 0]).toarray(), X[:, [11, 0]])
    for selector in (ANOVA(), SparGE(n_features_to_select=3), SelectorCV(ANOVA(), cv=2)):
        expected = clone(selector).fit(X, y)
        np.testing.assert_array_equal(selector.fit(lazy, y).selected_, expected.selected_)
    with pytest.raises(
        ValueError, match=r"neighbors need rows, but .* give a Dask array in chunks of rows"
    ):
        ReliefF().fit(lazy, y)


def test_an_array_of_the_package_dask_array_stays_lazy(labeled):
    X, y = labeled
    dask_array = pytest.importorskip("dask_array", exc_type=ImportError)  # it needs Dask of 2026
    other = dask_array.from_array(X, chunks=(25, 4))
    fitted = ANOVA(n_features_to_select=2).fit(other, y)
    np.testing.assert_allclose(fitted.scores_, ANOVA().fit(X, y).scores_)
    chosen = fitted.transform(other)
    assert isinstance(chosen, dask_array.Array)
    np.testing.assert_array_equal(chosen.compute(), fitted.transform(X))


# of anndata when it writes
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_backed_anndata_is_read_by_tiles(form, labeled, tmp_path):
    reason = "anndata for the newest pandas needs Python 3.12, and this environment has none"
    anndata = pytest.importorskip("anndata", reason=reason)
    X, y = labeled
    whole = anndata.AnnData(form(X))
    whole.write_h5ad(tmp_path / "a.h5ad")
    whole.write_zarr(tmp_path / "a.zarr")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r").X
    group = zarr.open(tmp_path / "a.zarr", mode="r")["X"]
    stored = group if form is np.asarray else anndata.io.sparse_dataset(group)
    expected = ANOVA(n_features_to_select=3).fit(X, y)
    for given in (backed, stored):
        matrix = Matrix.from_dask(readable(given))
        assert bool(matrix.column_tiles) == (form is sp.csc_matrix)
        assert len(matrix.row_tiles + matrix.column_tiles) > (form is not np.asarray)
        fitted = ANOVA(n_features_to_select=3).fit(given, y)
        np.testing.assert_allclose(fitted.scores_, expected.scores_)
        chosen = fitted.transform(given)
        assert isinstance(chosen, da.Array)
        assert sp.issparse(chosen.compute()) == (form is not np.asarray)


# --- out as they came in --------------------------------------------------------------------------


def test_polars_frames_go_in_and_out(labeled):
    pytest.importorskip("sklearn", "1.9", "older ones do not know the frames of newer polars")
    X, y = labeled
    frame = pl.DataFrame(X, schema=[f"f{j}" for j in range(D)])
    selector = ANOVA(n_features_to_select=2).fit(frame, y)
    np.testing.assert_array_equal(selector.feature_names_in_, frame.columns)
    np.testing.assert_array_equal(selector.transform(frame), X[:, selector.support_])
    chosen = selector.set_output(transform="polars").transform(frame)
    assert isinstance(chosen, pl.DataFrame)
    assert chosen.columns == list(selector.get_feature_names_out())
    np.testing.assert_array_equal(chosen.to_numpy(), X[:, selector.support_])
    of_pandas = selector.transform(frame.to_pandas())
    assert isinstance(of_pandas, pl.DataFrame)
    renamed = frame.rename({"f0": "other"})
    with pytest.raises(ValueError, match="feature names"):
        selector.transform(renamed)


def test_arrow_tables_have_names_and_give_what_scikit_learn_gives(labeled):
    X, y = labeled
    table = pa.table({f"f{j}": X[:, j] for j in range(D)})
    selector, peer = (
        kind(**{count: 2}).fit(table, y)
        for kind, count in ((ANOVA, "n_features_to_select"), (SelectKBest, "k"))
    )
    np.testing.assert_array_equal(selector.get_feature_names_out(), peer.get_feature_names_out())
    assert type(selector.transform(table)) is type(peer.transform(table)) is np.ndarray


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_what_is_sparse_or_lazy(library, labeled):
    """Sparse data are refused as scikit-learn refuses them. A `Matrix` has sparse columns."""
    X, y = labeled
    selector = ANOVA(n_features_to_select=2).set_output(transform=library).fit(X, y)
    peer = SelectKBest(k=2).set_output(transform=library).fit(X, y)
    for estimator in (selector, peer):
        with pytest.raises(ValueError, match="outputs a scipy sparse matrix"):
            estimator.transform(sp.csr_array(X))
    with pytest.raises(ValueError, match=rf"lazy and is no data frame of {library}.*X\.compute"):
        selector.transform(da.from_array(X, chunks=(20, 12)))
    if library == "pandas":
        chosen = selector.transform(Matrix.from_array(sp.csr_array(X)))
        np.testing.assert_array_equal(chosen.sparse.to_dense(), X[:, selector.support_])
    else:
        with pytest.raises(ValueError, match="outputs a scipy sparse matrix"):
            selector.transform(Matrix.from_array(sp.csr_array(X)))


def test_a_column_of_dates_is_named():
    frame = pd.DataFrame(
        {"income": np.arange(4.0), "signup": pd.date_range("2026-01-01", periods=4)}
    )
    with pytest.raises(ValueError, match="column signup holds dates or times: leave it out"):
        ANOVA(n_features_to_select=1).fit(frame, [0, 1, 0, 1])
