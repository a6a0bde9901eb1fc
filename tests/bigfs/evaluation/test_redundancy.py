"""The redundancy rate against numpy's correlations."""

import numpy as np
import pytest
import scipy.sparse as sp

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
