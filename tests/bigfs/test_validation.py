"""Canonical sparse input and finite values."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import ANOVA, SelectorCV
from bigfs.validation import canonical, require_finite


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_canonical_sums_duplicates_and_leaves_its_input_alone(form, rng):
    rows, columns, values = rng.integers(0, 7, 60), rng.integers(0, 5, 60), rng.random(60)
    X = sp.coo_array((values, (rows, columns)), shape=(7, 5))
    if form == "csr":
        order = np.argsort(rows, kind="stable")
        X = sp.csr_array(
            (values[order], columns[order], np.searchsorted(rows[order], np.arange(8))),
            shape=(7, 5),
        )
    elif form == "csc":
        order = np.argsort(columns, kind="stable")
        X = sp.csc_array(
            (values[order], rows[order], np.searchsorted(columns[order], np.arange(6))),
            shape=(7, 5),
        )
    before, dense = X.data.copy(), np.zeros((7, 5))
    np.add.at(dense, (rows, columns), values)
    Z = canonical(X)
    assert Z.has_canonical_format
    np.testing.assert_allclose(Z.toarray(), dense, rtol=1e-12)
    np.testing.assert_array_equal(X.data, before)
    assert canonical(Z) is Z


def test_canonical_refuses_contradicting_indices():
    X = sp.csr_array((np.ones(2), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
    X.indices[1] = 9
    with pytest.raises(ValueError, match="ind"):
        canonical(X)


def test_require_finite_names_the_fault():
    require_finite(np.array([1.0, -2.0]), "X")
    require_finite(np.array([1e308, 1e308]), "X")  # the sum overflows, no value does
    for bad, word in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
        with pytest.raises(ValueError, match=f"X contains {word}"):
            require_finite(np.array([1.0, bad]), "X")
    with pytest.raises(ValueError, match="infinity"):
        require_finite(np.array([np.inf, 1e308, 1e308]), "X")


# --- what is larger than memory -------------------------------------------------------------------


def lazy(module, name, **attributes):
    """An object of a class of another library, which must not be read."""

    def read(self, *args, **kwargs):
        raise AssertionError("it was read")

    kind = type(name, (), {"__module__": module, "__array__": read, **attributes})
    return kind()


@pytest.mark.parametrize(
    ("X", "advice"),
    [
        (lazy("zarr.core.array", "Array", shape=(4, 2)), "dask.array.from_zarr"),
        (lazy("h5py._hl.dataset", "Dataset", shape=(4, 2)), "dask.array.from_array"),
        (lazy("anndata._core.sparse_dataset", "_CSRDataset", shape=(4, 2)), "in memory"),
        (lazy("anndata._core.anndata", "AnnData", shape=(4, 2)), "give the X of an AnnData"),
        (lazy("polars.lazyframe.frame", "LazyFrame"), r"X\.collect"),
        (lazy("duckdb", "DuckDBPyRelation"), r"X\.df"),
        (lazy("_duckdb", "DuckDBPyRelation"), r"X\.df"),
        (lazy("xarray.core.dataarray", "DataArray", chunks=((2, 2),)), r"X\.data"),
        (dask.delayed(np.ones)((4, 2)), "from_delayed"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__module__,
)
def test_what_would_be_loaded_whole_is_refused_with_advice(X, advice):
    fitted = ANOVA().fit(np.eye(4)[:, :2], [0, 1, 0, 1])
    for call in (
        lambda: ANOVA().fit(X, [0, 1, 0, 1]),
        lambda: fitted.transform(X),
        lambda: SelectorCV(ANOVA(), cv=2).fit(X, [0, 1, 0, 1]),
    ):
        with pytest.raises(TypeError, match=f"X must be an array.*{advice}.*storage.stage"):
            call()


def test_views_of_arrays_in_memory_are_read(rng):
    class ArrayView(np.ndarray):
        __module__ = "anndata._core.views"

    X, y = rng.random((12, 3)), np.arange(12) % 2
    np.testing.assert_array_equal(
        ANOVA().fit(X.view(ArrayView), y).scores_, ANOVA().fit(X, y).scores_
    )


def test_an_array_of_another_library_with_a_graph_of_dask_stays_lazy(rng):
    X, y = rng.random((12, 3)), np.arange(12) % 2
    inner = da.from_array(X, chunks=(5, -1))
    parts = ("__dask_graph__", "to_delayed", "__getitem__", "rechunk")
    whole = {part: lambda self, *a, part=part: getattr(inner, part)(*a) for part in parts}
    known = ("shape", "chunks", "ndim", "dtype", "_meta")
    whole |= {name: property(lambda self, name=name: getattr(inner, name)) for name in known}
    other = lazy("dask_array.collection", "Array", **whole)
    fitted = ANOVA(n_features_to_select=2).fit(other, y)
    np.testing.assert_allclose(fitted.scores_, ANOVA().fit(X, y).scores_)
    assert isinstance(fitted.transform(other), da.Array)
