"""The redundancy rate against numpy's correlations."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import Matrix
from bigfs.evaluation.quality import redundancy_rate


def test_is_the_mean_absolute_correlation(rng):
    Z = rng.standard_normal((50, 6)) @ rng.standard_normal((6, 6))
    Z[np.abs(Z) < 0.5] = 0
    expected = np.abs(np.corrcoef(Z, rowvar=False))[np.triu_indices(6, 1)].mean()
    assert redundancy_rate(Z) == pytest.approx(expected)
    assert redundancy_rate(sp.csr_array(Z)) == pytest.approx(expected)


def test_limits(rng):
    z = rng.standard_normal((40, 1))
    assert redundancy_rate(np.hstack([z, -2 * z, z + 3])) == pytest.approx(1)
    # a constant column correlates with nothing
    assert redundancy_rate(np.hstack([z, np.full((40, 1), 7.0)])) == 0
    assert redundancy_rate(z) == 0


def test_a_matrix_by_columns_alone_has_the_redundancy_of_its_columns(rng):
    Z = rng.normal(size=(40, 12))
    columns = Matrix.from_array(Z, tile_columns=5).column_tiles
    index = np.array([0, 3, 11])
    found = redundancy_rate(Matrix(Z.shape, columns=columns, local=True), index)
    assert found == pytest.approx(redundancy_rate(Z[:, index]), rel=1e-12)
