"""What holds for every method of the registry: neither tiles nor layouts matter, permuted features
have permuted scores, and a run that was killed goes on.
"""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import Matrix
from bigfs.result import observe
from bigfs.selectors.registry import METHODS
from bigfs.storage.runs.checkpoints import Checkpoint
from tests.bigfs.selectors.test_no_information import dense, make, target_of
from tests.helpers.daily import nightly
from tests.helpers.fitting import fit_few_steps

X, Y = dense()
# few steps, in which rounding does not grow
STEPS = {"max_iter": 6, "tol": 1e-12, "solver_tol": 1e-12, "solver_max_iter": 500}
COUNTS = {"mcfs": 9, "trace-ratio-laplacian": 3}  # of features to select, which take several steps
# how near the scores are, relative to the largest: the lassos that make its hyperedges go in the
# order of the features
CLOSE = {"jhlsr": 1e-4}
# methods that read rows, and those of one step or none
BY_ROWS = {"sparge-sda", "sparge-lpp", "jhlsr", "jgsc", "rjgsc", "smr", "mcfs", "mrsf", "jelsr"}
BY_ROWS |= {"ndfs", "udfs", "glspfs", "gsc", "llfs", "laplacian", "relieff", "sselect", "spec"}
BY_ROWS |= {"trace-ratio-laplacian"}
AT_ONCE = {"laplacian", "fisher", "anova", "chi2", "mutual-info", "gini", "ranksum", "t-score"}
AT_ONCE |= {"f-regression", "variance", "hvg", "relieff", "lsdf", "sselect", "spec", "trcfs"}
AT_ONCE |= {"trace-ratio"}


def fit(method, given, atoms=X):
    """Return a fitted selector and the score of each feature."""
    selector = make(method, atoms)
    options = STEPS | {"n_features_to_select": COUNTS.get(method, 7)}
    known = selector.get_params()
    selector.set_params(**{name: value for name, value in options.items() if name in known})
    fit_few_steps(selector, given, target_of(method, Y))
    return selector, getattr(selector, METHODS[method].scores)


@cache
def whole(method):
    """Return what `fit` gives of the data in one piece, and the number of its steps."""
    steps = []
    with observe(lambda *_: steps.append(1)):
        return *fit(method, X), len(steps)


def assert_near(method, found, expected):
    bound = CLOSE.get(method, 1e-6) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


# that of `auto` is in test_auto.py
@pytest.mark.parametrize("method", [m if m != "auto" else nightly(m) for m in METHODS])
def test_neither_tiles_nor_layouts_matter(method):
    expected = whole(method)[1]
    both = Matrix.from_array(sp.csr_array(X), tile_rows=17, tile_columns=4)
    rows = Matrix(both.shape, rows=both.row_tiles, local=True)
    columns = Matrix(both.shape, columns=both.column_tiles, local=True)
    for matrix in (both, rows):
        assert_near(method, fit(method, matrix)[1], expected)
    if method in BY_ROWS:
        with pytest.raises(ValueError, match="has only the layout by columns"):
            fit(method, columns)
    else:
        assert_near(method, fit(method, columns)[1], expected)


@pytest.mark.parametrize("method", METHODS)
def test_permuted_features_have_permuted_scores(method, rng):
    order = rng.permutation(10)
    found = fit(method, X[:, order], X[:, order])[1]
    assert_near(method, found, whole(method)[1][order])


@pytest.mark.parametrize("method", sorted(METHODS.keys() - AT_ONCE))
def test_a_run_that_was_killed_makes_each_step_once(method, tmp_path):
    """It is killed after its first step and before its last one."""
    selector, scores, needed = whole(method)
    steps, kills = [], {1, needed - 1}

    def fitted(checkpoint):
        with observe(lambda *_: steps.append(1), checkpoint):
            return fit(method, X)

    class Dying(Checkpoint):
        def save(self, *given):
            super().save(*given)
            if len(steps) in kills:
                raise KeyboardInterrupt

    for _ in kills:
        with pytest.raises(KeyboardInterrupt):
            fitted(Dying(tmp_path, "k"))
    resumed, again = fitted(Checkpoint(tmp_path, "k"))
    assert len(steps) == needed > 1
    np.testing.assert_allclose(again, scores, rtol=1e-9, atol=1e-12)
    assert len(resumed.result_.history) == len(selector.result_.history)
