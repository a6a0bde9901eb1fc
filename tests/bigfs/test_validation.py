"""Canonical sparse input and finite values."""

from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bigfs import ANOVA, Matrix, SelectorCV
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


def test_error_names_the_column(rng):
    X, y = rng.random((6, 4)), np.arange(6) % 2
    X[4, 2] = np.nan
    frame = pd.DataFrame(X, columns=["age", "height", "weight", "dose"])
    lazy_frame = dd.from_pandas(frame, npartitions=2)
    for given, column in (
        (X, "2"),
        (sp.csr_array(X), "2"),
        (sp.csc_array(X), "2"),
        (frame, "'weight'"),
        (da.from_array(X, chunks=(2, 4)), "2"),
        (da.from_array(X, chunks=(6, 2)), "2"),
        (lazy_frame, "2"),
    ):
        with pytest.raises(ValueError, match=f"X contains NaN in column {column}: replace missing"):
            ANOVA().fit(given, y)
    X[:, 1] = np.inf
    X[4, 2] = 0
    with pytest.raises(ValueError, match="X contains infinity in column 1: replace infinite"):
        ANOVA().fit(X, y)


@pytest.mark.parametrize(
    "y", [[0.0, 1, np.nan, 0], ["a", "b", None, "a"], pd.Series([0, 1, pd.NA, 1], dtype="Int64")]
)
def test_missing_labels_are_refused_with_how_to_mark_them(y):
    X = np.eye(4)
    for given in (X, da.from_array(X, chunks=(2, 4))):
        with pytest.raises(ValueError, match=r"y .*\(NaN\): leave these samples out"):
            ANOVA().fit(given, y)
    with pytest.raises(ValueError, match=r"y .*\(NaN\): mark these samples by -1"):
        ANOVA().fit(Matrix.from_array(X), y)


def test_number_of_classes_is_grammatical():
    X = np.eye(4)
    for given, y, found in (
        (Matrix.from_array(X), [-1] * 4, "0 classes in addition to -1"),
        (X, [3] * 4, "1 class$"),
    ):
        with pytest.raises(ValueError, match=f"at least two classes; got {found}"):
            ANOVA().fit(given, y)


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
        (lazy("zarr.core.group", "Group"), "one array of it, or stage its file"),
        (lazy("anndata._core.anndata", "AnnData", shape=(4, 2)), r"fit\(adata\.X, adata\.obs\["),
        (lazy("polars.lazyframe.frame", "LazyFrame"), r"X\.collect"),
        (lazy("duckdb", "DuckDBPyRelation"), r"X\.df"),
        (lazy("_duckdb", "DuckDBPyRelation"), r"X\.df"),
        (lazy("xarray.core.dataarray", "DataArray", chunks=((2, 2),)), r"X\.data"),
        (dask.delayed(np.ones)((4, 2)), "from_delayed"),
        ("rows.svm", r"got str: give bigfs\.storage\.open\(bigfs\.storage\.stage\(X, store\)\)\.X"),
        (Path("rows.svm"), r"storage\.open\(bigfs\.storage\.stage"),
        ((row for row in np.eye(4)), r"got generator: give bigfs\.storage\.open"),
        ([{"a": 1.0}, {"b": 2.0}], r"got list of dict: give .*DictVectorizer\(\)"),
        (["some words", "other"], r"got list of str: give .*TfidfVectorizer\(\)"),
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
        with pytest.raises(TypeError, match=f"X must be an array.*{advice}"):
            call()


def test_views_of_arrays_in_memory_are_read(rng):
    class ArrayView(np.ndarray):
        __module__ = "anndata._core.views"

    X, y = rng.random((12, 3)), np.arange(12) % 2
    np.testing.assert_array_equal(
        ANOVA().fit(X.view(ArrayView), y).scores_, ANOVA().fit(X, y).scores_
    )
