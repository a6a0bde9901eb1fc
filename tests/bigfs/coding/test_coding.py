"""JGSC, RJGSC and SMR on stores: killed at any loop and continued, and on two workers, the answer
is the same to the bit.
"""

import numpy as np
import pytest

from bigfs import JGSC, RJGSC, SMR, engine, storage
from bigfs.result import observe
from bigfs.storage.runs.runs import Checkpoint
from tests.helpers.fitting import fit_few_steps

pytestmark = pytest.mark.slow

pytest.importorskip("spams", reason="the extra bigfs[jgsc] is not installed")

METHODS = {
    "JGSC": lambda: JGSC(
        n_atoms=12, lam=5.0, batch_rows=100, epochs=1, n_neighbors=4, max_iter=6, tol=1e-9
    ),
    "RJGSC": lambda: RJGSC(
        n_atoms=12, lam=0.5, batch_rows=100, epochs=1, n_neighbors=4, max_iter=6, tol=1e-9
    ),
    "SMR": lambda: SMR(sample_shape=(32, 32), order="F", k=2, max_iter=6),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """300 texts, and 320 images of 68 classes; several tiles of rows each."""
    home = tmp_path_factory.mktemp("stores")
    text = storage.stage("synthetic:newswire?rows=300", home / "text.zarr", tile_rows=70)
    images = storage.stage("synthetic:images?rows=320", home / "images.zarr", tile_rows=90)
    return {"JGSC": text, "RJGSC": text, "SMR": images}


def fit(method, uri):
    corpus = storage.open(uri)
    assert len(corpus.X.row_tiles) > 1
    return fit_few_steps(METHODS[method](), corpus.X, corpus.y)


@pytest.fixture(scope="module")
def straight(stores):
    return {method: fit(method, uri) for method, uri in stores.items()}


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("method", "loop"),
    [("JGSC", "dictionary learning"), ("JGSC", "JGSC"), ("RJGSC", "RJGSC"), ("SMR", "SMR")],
)
def test_a_killed_run_goes_on_to_the_same_answer(stores, straight, tmp_path, method, loop):
    """Killed after the second step of a loop, before its state is on disk: one step is repeated,
    none that was kept.
    """
    steps = []

    def strike(name, record):
        steps.append(name)
        if steps.count(loop) == 2:
            raise Killed

    with pytest.raises(Killed), observe(callback=strike, checkpoint=Checkpoint(tmp_path, "k")):
        fit(method, stores[method])
    again, seen = Checkpoint(tmp_path, "k"), []
    with observe(callback=lambda name, record: seen.append(name), checkpoint=again):
        model = fit(method, stores[method])
    assert again.resumed[loop] == 1
    # of ⌈300/100⌉ batches, of six steps
    assert seen.count(loop) == (2 if loop == "dictionary learning" else 5)
    assert ("dictionary learning" in seen) is (loop == "dictionary learning")
    np.testing.assert_array_equal(model.scores_, straight[method].scores_)
    assert model.result_.history == straight[method].result_.history


@pytest.mark.process
def test_two_workers_give_the_same_bits(stores, straight):
    with engine.cluster(workers=2, memory_limit="1GB"):
        for method, uri in stores.items():
            np.testing.assert_array_equal(
                fit(method, uri).scores_, straight[method].scores_, err_msg=method
            )
