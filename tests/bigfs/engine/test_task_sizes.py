"""What travels with each task, for every method: nothing that grows with the columns."""

import contextlib
import functools
from collections import defaultdict

import cloudpickle
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import engine, storage
from bigfs.engine.executor import Run, is_handle
from bigfs.evaluation.scoring import score_sets
from bigfs.evaluation.splits import Split
from bigfs.matrix import gathering
from bigfs.selectors.registry import METHODS
from tests.helpers.daily import daily
from tests.helpers.fitting import fit_few_steps
from tests.helpers.threads import threads

# its scores are in the statistics of a store
WITHOUT_TASKS = {"variance"}
MOST = 10_000  # bytes of a task of 10⁶ columns
N, FEW, MANY, ALL = 48, 1_000, 3_000, 10**6


def travels(operand, is_common=False):
    """Return what of an operand travels with its task alone: not the value of another task, and not
    its own part of an array with a row per sample or per feature."""
    if isinstance(operand, Run):
        return operand.tiles, [[travels(own) for own in each] for each in operand.operands]
    is_part = isinstance(operand, np.ndarray) and not is_common
    return None if is_part or is_handle(operand) else operand


def are_one(values):
    return len(values) > 1 and all(value is values[0] for value in values)


@contextlib.contextmanager
def sizes_of_tasks(client, monkeypatch):
    """Collect the largest pickle of the tasks that a client is sent, by the names of the tasks."""
    largest, send = defaultdict(int), client.map

    def measure(task, *operands, **options):
        own = [[travels(value, are_one(values)) for value in values] for values in operands]
        for of_task in zip(*own, strict=True):
            size = len(cloudpickle.dumps((task, *of_task)))
            largest[task.__name__] = max(largest[task.__name__], size)
        return send(task, *operands, **options)

    with monkeypatch.context() as patch:
        patch.setattr(client, "map", measure)
        yield largest


@pytest.fixture(scope="module")
def client():
    with threads(1, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the matrix of a store with that many columns, most of them empty, and its classes."""
    home = tmp_path_factory.mktemp("stores")

    @functools.cache
    def make(d):
        rng, y = np.random.default_rng(0), np.arange(N) % 2
        S = sp.random_array((N, 24), density=0.8, format="csr", rng=rng).toarray()
        S[:, :2] += y[:, None]
        wide = sp.csr_array(sp.hstack([sp.csr_array(S), sp.csr_array((N, d - 24))]))
        sp.save_npz(home / f"{d}.npz", wide)
        uri = storage.stage(home / f"{d}.npz", home / f"{d}.zarr", tile_rows=16)
        return uri, y

    return make


def sizes(name, d, forbid, client, store, monkeypatch):
    uri, y = store(d)
    target = y if "class" in METHODS[name].targets else y + 0.01 * np.arange(N)
    selector = METHODS[name].make(n_features_to_select=3)
    given = selector.get_params()
    own = {"max_iter": 2, "gammas": [1.0], "cv": 2, "metric": "euclidean"}
    own |= {"sample_shape": (40, d // 40), "n_atoms": 4, "epochs": 1, "forbid": forbid}
    selector.set_params(**{key: value for key, value in own.items() if key in given})
    with engine.cluster(client), sizes_of_tasks(client, monkeypatch) as largest:
        fit_few_steps(selector, storage.open(uri).X, target if METHODS[name].targets else None)
    return largest


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("forbid", daily([None, [1]], None))
def test_every_task_of_a_method_is_small(name, forbid, client, store, monkeypatch, change):
    """At most 10 kB for 10⁶ columns, if a task grows with them by the same number of bytes from
    1,000 columns to 3,000 as from there. A bit per column would be 125 kB."""
    change(gathering.MIN_NNZ, 10**12)
    few, many = (sizes(name, d, forbid, client, store, monkeypatch) for d in (FEW, MANY))
    assert many or name in WITHOUT_TASKS
    for task, size in many.items():
        growth = max(0, size - few[task]) / (MANY - FEW)
        assert size + growth * (ALL - MANY) <= MOST, task


def test_the_labels_of_a_split_travel_once(client, tmp_path, monkeypatch):
    rng, y = np.random.default_rng(0), np.arange(5_000) % 2
    sp.save_npz(tmp_path / "tall.npz", sp.random_array((5_000, 9), density=0.2, rng=rng).tocsr())
    X = storage.open(storage.stage(tmp_path / "tall.npz", tmp_path / "tall.zarr")).X
    sets = {"two": np.arange(2), "five": np.arange(5)}
    with engine.cluster(client), sizes_of_tasks(client, monkeypatch) as largest:
        assert set(score_sets(Split(X, y, X, y), sets)) == set(sets)
    assert 0 < largest["_score_set"] <= MOST
