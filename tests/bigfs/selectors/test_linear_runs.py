"""The selectors that iterate, on stores: on two workers, and with a worker killed in the middle,
the answer is the same to the bit.
"""

import os
import signal
from functools import cache

import numpy as np
import pytest

from bigfs import (
    GLSPFS,
    GSC,
    JELSR,
    JFS,
    L1SVM,
    L2SVM,
    LLFS,
    MCFS,
    NDFS,
    RFS,
    SVMRFE,
    UDFS,
    engine,
    storage,
)
from bigfs.engine.budget import Shares
from bigfs.linalg import svm
from bigfs.result import observe
from tests.helpers.fitting import fit_few_steps

pytestmark = pytest.mark.slow

METHODS = {  # one per solver
    "L2SVM": lambda: L2SVM(),
    "SVMRFE": lambda: SVMRFE(n_features_to_select=20, step=0.4),
    "L1SVM": lambda: L1SVM(n_features_to_select=20),
    "MCFS": lambda: MCFS(n_features_to_select=60),
    "RFS": lambda: RFS(solver="cg", max_iter=4),
}
# on few features: the wide store would take them long, and JFS reconstructs every one
ON_FEW = {
    "UDFS": lambda: UDFS(n_features_to_select=6, n_components=2, max_iter=4, tol=1e-9),
    "NDFS": lambda: NDFS(n_features_to_select=6, n_components=3, max_iter=4, tol=1e-9),
    "JELSR": lambda: JELSR(n_features_to_select=6, n_components=2, max_iter=4, tol=1e-9),
    "GLSPFS": lambda: GLSPFS(n_features_to_select=6, max_iter=4, tol=1e-9),
    "JFS": lambda: JFS(n_features_to_select=6, max_iter=4, tol=1e-9),
    "GSC": lambda: GSC(n_atoms=8, batch_rows=30, epochs=1, n_neighbors=3, max_iter=4, tol=1e-9),
    "LLFS": lambda: LLFS(n_features_to_select=6, lam=0.1, max_iter=4, tol=0.0),
}


@pytest.fixture(scope="module", autouse=True)
def by_tiles():
    """Train the classifiers by the tiles: by the kernel of so few samples they would end in a
    step."""
    with svm.MOST_WORK.during(0):
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """300 texts in several tiles of rows and columns."""
    home = tmp_path_factory.mktemp("stores")
    return storage.stage("synthetic:newswire?rows=300", home / "text.zarr", tile_rows=70)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """90 samples of three classes and 24 features, in four tiles of rows."""
    rng = np.random.default_rng(5)
    home, codes = tmp_path_factory.mktemp("few"), np.repeat([0, 1, 2], 30)
    X = rng.random((90, 24)) + np.eye(3)[codes] @ rng.random((3, 24))
    lines = (
        f"{code} " + " ".join(f"{j}:{value:.6f}" for j, value in enumerate(row, 1))
        for code, row in zip(codes, X, strict=True)
    )
    (home / "few.svm").write_text("\n".join(lines) + "\n")
    return storage.stage(home / "few.svm", home / "few.zarr", tile_rows=25)


def fit(method, uri):
    corpus = storage.open(uri)
    assert len(corpus.X.row_tiles) > 1
    selector = (METHODS | ON_FEW)[method]()
    return fit_few_steps(selector, corpus.X, corpus.y if selector._supervised else None)


@pytest.fixture(scope="module")
def straight():
    return cache(fit)


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.parametrize("method", ON_FEW)
def test_a_worker_killed_in_the_middle_changes_nothing(few, straight, method):
    """Killed when the first step of the method's own loop is done."""
    if method == "GSC":
        pytest.importorskip("spams", reason="the extra bigfs[jgsc] is not installed")
    killed = []
    with engine.cluster(workers=2, memory_limit="1GB") as client:
        first = min(client.run(os.getpid).values())

        def strike(name, record):
            if not killed:
                os.kill(first, signal.SIGKILL)
                killed.append(name)

        with observe(callback=strike):
            model = fit(method, few)
    assert killed
    np.testing.assert_array_equal(model.scores_, straight(method, few).scores_)
    assert model.result_.history == straight(method, few).result_.history


def test_elimination_streams_a_store_that_does_not_fit(store, straight, change):
    expected = straight("SVMRFE", store)
    change(engine.SHARES, Shares(active_columns=1e-7))
    selector = fit("SVMRFE", store)
    assert selector.result_.stats["passes"] > 100
    assert expected.result_.stats["passes"] <= 1
    np.testing.assert_array_equal(selector.selected_, expected.selected_)


@pytest.mark.nightly
@pytest.mark.process
def test_two_workers_give_the_same_bits(store, straight):
    with engine.cluster(workers=2, memory_limit="1GB"):
        for method in METHODS:
            np.testing.assert_array_equal(
                fit(method, store).scores_, straight(method, store).scores_, err_msg=method
            )
