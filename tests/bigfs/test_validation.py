"""Canonical sparse input and finite values."""

import numpy as np
import pytest
import scipy.sparse as sp

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
