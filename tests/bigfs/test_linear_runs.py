"""The linear selectors on stores: killed and continued, and on two workers, the answer is the same
to the bit.
"""

import numpy as np
import pytest

import storage
from bigfs import DLSR, L1SVM, L2SVM, MCFS, MRSF, RFS, SPFS, SVMRFE, MultiTaskLasso, engine
from bigfs.result import observed
from storage.runs import Checkpoint
from tests.helpers.fitting import fit_few_steps

pytestmark = pytest.mark.slow

METHODS = {
    "L2SVM": lambda: L2SVM(),
    "SVMRFE": lambda: SVMRFE(n_features_to_select=20, step=0.4),
    "L1SVM": lambda: L1SVM(n_features_to_select=20),
    "MultiTaskLasso": lambda: MultiTaskLasso(n_features_to_select=20),
    "MCFS": lambda: MCFS(n_features_to_select=20),
    "MRSF": lambda: MRSF(n_features_to_select=20),
    "DLSR": lambda: DLSR(n_features_to_select=20),
    "SPFS": lambda: SPFS(n_features_to_select=20),
    "RFS": lambda: RFS(solver="cg", max_iter=4),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """300 texts in several tiles of rows and columns."""
    home = tmp_path_factory.mktemp("stores")
    return storage.stage("synthetic:newswire?rows=300", home / "text.zarr", tile_rows=70)


def fit(method, uri):
    corpus = storage.open(uri)
    assert len(corpus.X.row_tiles) > 1
    return fit_few_steps(METHODS[method](), corpus.X, corpus.y)


@pytest.fixture(scope="module")
def straight(store):
    return {method: fit(method, store) for method in METHODS}


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("method", "loop"),
    [(m, m) for m in METHODS] + [("SVMRFE", "SVMRFE, first machines")],
)
def test_a_killed_run_goes_on_to_the_same_answer(store, straight, tmp_path, method, loop):
    """Killed after the second step of a loop, before its state is on disk: one step is repeated."""
    steps = []

    def strike(name, record):
        steps.append(name)
        if steps.count(loop) == 2:
            raise Killed

    with pytest.raises(Killed), observed(callback=strike, checkpoint=Checkpoint(tmp_path, "k")):
        fit(method, store)
    again = Checkpoint(tmp_path, "k")
    with observed(checkpoint=again):
        model = fit(method, store)
    assert again.resumed[loop] == 1
    tolerance = 1e-9 if method == "RFS" else 0  # its working set is gathered again
    np.testing.assert_allclose(model.scores_, straight[method].scores_, rtol=tolerance, atol=0)
    assert len(model.result_.history) == len(straight[method].result_.history)


def test_elimination_streams_a_store_that_does_not_fit(store, straight, monkeypatch):
    monkeypatch.setattr("bigfs.linalg.active_columns.MEMORY_SHARE", 1e-7)
    selector = fit("SVMRFE", store)
    assert selector.result_.stats["passes"] > 100
    assert straight["SVMRFE"].result_.stats["passes"] <= 1
    np.testing.assert_array_equal(selector.selected_, straight["SVMRFE"].selected_)


@pytest.mark.nightly
@pytest.mark.process
def test_two_workers_give_the_same_bits(store, straight):
    with engine.cluster(workers=2, memory_limit="1GB"):
        for method in ("L2SVM", "SVMRFE", "L1SVM", "MCFS", "RFS"):  # one per solver
            np.testing.assert_array_equal(
                fit(method, store).scores_, straight[method].scores_, err_msg=method
            )
