"""The products of gathered columns: dense oracles, and bits that depend on nothing but the two
columns.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import Matrix
from bigfs.cutting_plane import columns
from bigfs.cutting_plane.columns import GatheredColumns, sparse_gram


@pytest.mark.parametrize("density", [0.01, 0.2, 1.0])
def test_sparse_gram_has_the_same_bits_by_either_kernel_and_from_either_side(
    rng, monkeypatch, density
):
    Z = sp.random_array((700, 40), density=density, format="csc", rng=rng, dtype=np.float32)
    Z.sort_indices()
    whole = sparse_gram(Z, Z)
    np.testing.assert_allclose(
        whole, Z.toarray().astype(float).T @ Z.toarray(), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(whole, whole.T)
    for threshold in (0.0, 2.0):
        monkeypatch.setattr(columns, "DENSE_SHARE", threshold)
        np.testing.assert_array_equal(sparse_gram(Z, Z), whole)
        np.testing.assert_array_equal(sparse_gram(Z, Z[:, [3, 17]]), whole[:, [3, 17]])


@pytest.mark.parametrize("weights", [None, "some", "zeros"])
def test_gathered_columns_do_not_depend_on_the_order_of_adding(rng, weights):
    X = sp.random_array((90, 30), density=0.2, format="csr", rng=rng, dtype=np.float32)
    omega = (
        None
        if weights is None
        else rng.uniform(0.5, 2, 90) * (1 if weights == "some" else np.arange(90) % 3 > 0)
    )
    T = rng.normal(size=(90, 3))
    in_one_call, in_two_calls = (
        GatheredColumns(Matrix.from_array(X, tile_columns=7), T, omega) for _ in range(2)
    )
    in_one_call.add(np.array([2, 5, 11, 29]))
    in_two_calls.add(np.array([29, 5]))
    in_two_calls.add(np.array([11, 2, 29]))
    for name in ("features", "mu", "G", "B"):
        np.testing.assert_array_equal(getattr(in_one_call, name), getattr(in_two_calls, name))
    ones = np.ones(90) if omega is None else omega
    dense = X.toarray()[:, [2, 5, 11, 29]].astype(float)
    Xc = ones[:, None] * (dense - ones**2 @ dense / np.sum(ones**2))
    np.testing.assert_allclose(in_two_calls.G, Xc.T @ Xc, atol=1e-12)
    np.testing.assert_allclose(in_two_calls.B, Xc.T @ T, atol=1e-12)
    np.testing.assert_allclose(dense.T @ in_two_calls.center(T), Xc.T @ T, atol=1e-12)
    W = rng.normal(size=(2, 3))
    np.testing.assert_allclose(
        in_two_calls.residual(W, np.array([5, 29])), T - Xc[:, [1, 3]] @ W, atol=1e-12
    )
    G, B = in_two_calls.gram(np.array([5, 29]))
    np.testing.assert_allclose(G, (Xc.T @ Xc)[np.ix_([1, 3], [1, 3])], atol=1e-12)
    np.testing.assert_allclose(B, (Xc.T @ T)[[1, 3]], atol=1e-12)
