"""One executor: who runs is asked once, what is sent is counted, and a lost cluster is never a
serial run.
"""

import contextlib
import os
import pickle
import signal
import sys
import tracemalloc
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster

import bigfs
from bigfs import LaplacianScore, Matrix, ReliefF, SparGE, engine, storage
from bigfs.engine import clusters, executor
from bigfs.engine.executor import OnCluster
from bigfs.engine.shared import Shared, replace_held
from bigfs.graph import class_neighbors, row_blocks
from bigfs.graph.approximate.cost import predict
from bigfs.graph.row_blocks import RowBlock, Step, block_size, compare_pairs
from bigfs.matrix import gathering
from bigfs.result import NotConvergedWarning, observe
from tests.helpers.counting import counted_tasks
from tests.helpers.threads import threads

GB = 10**9


@pytest.fixture
def store(tmp_path, rng, change):
    """A corpus of 8 tiles whose columns the driver does not hold, and its labels."""
    change(gathering.MIN_NNZ, 10**12)
    S = sp.random_array((240, 40), density=0.3, format="csr", rng=rng)
    sp.save_npz(tmp_path / "a.npz", S)
    corpus = storage.open(storage.stage(tmp_path / "a.npz", tmp_path / "a.zarr", tile_rows=30))
    return corpus.X, np.arange(240) % 3


# --- a cluster that is lost -----------------------------------------------------------------------


class Pair(NamedTuple):
    values: np.ndarray
    number: int


def fit(X, y):
    selector = SparGE(n_features_to_select=5, embedding="lpp", max_iter=2, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return selector.fit(X, y).scores_


def at_step(number, strike):
    """Call a function at the step of this number of the progress and the solvers in the block, and
    collect the names of all steps."""
    names = []

    def note(name, *_):
        names.append(name)
        if len(names) == number:
            strike()

    stack = contextlib.ExitStack()
    stack.enter_context(engine.progress(note))
    stack.enter_context(observe(callback=note))
    return stack, names


STEPS = (1, 3, 4, 12, 20)  # within and after the graph, in the passes, and after a cut


def test_the_steps_of_a_fit_are_those_that_are_struck(store):
    with threads() as client, counted_tasks(client):
        stack, names = at_step(None, None)
        with stack:
            on_cluster = fit(*store)
    assert len(set(names)) == 3
    assert len(names) > max(STEPS)
    with engine.cluster(workers=0):
        np.testing.assert_array_equal(on_cluster, fit(*store))


def lose(client, how):
    client.close() if how == "closed" else client.cluster.close()


@pytest.mark.parametrize("how", ["closed", "scheduler"])
@pytest.mark.parametrize("step", STEPS)
def test_a_lost_cluster_of_the_users_own_is_an_error_in_each_step(store, step, how, change):
    change(executor.CANCEL_SECONDS, 0.1)
    with threads() as client:
        stack, names = at_step(step, lambda: lose(client, how))
        with stack, pytest.raises(engine.ClusterLostError, match=r"lost|no workers"):
            fit(*store)
        assert len(names) >= step
        with pytest.raises(engine.ClusterLostError):  # nor is the next fit a serial one
            fit(*store)


def test_a_client_that_has_lost_its_cluster_is_not_this_process():
    with threads() as client:
        client.cluster.close()
        with pytest.raises(
            engine.ClusterLostError, match="connection to the Dask cluster was lost"
        ):
            engine.map_tiles(len, ["a"])
        with engine.cluster(workers=0):
            assert engine.map_tiles(len, ["a"]) == [1]


@pytest.mark.process
@pytest.mark.parametrize("how", ["restarted", "killed"])
@pytest.mark.parametrize("step", STEPS)
def test_a_restarted_cluster_is_an_error_and_a_killed_worker_none(store, step, how):
    with engine.cluster(workers=0):
        expected = fit(*store)
    with engine.cluster(workers=2) as client:

        def strike():
            if how == "restarted":
                client.restart()
            else:
                os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

        stack, _ = at_step(step, strike)
        with stack:
            try:
                np.testing.assert_array_equal(fit(*store), expected)
            except engine.ClusterLostError:
                assert how == "restarted"


# --- who runs is asked once -----------------------------------------------------------------------


def test_a_fit_holds_the_client_that_it_has_found(store):
    with threads() as client:
        seen = []
        with observe(callback=lambda *_: seen.append(engine.current_session().client)):
            fit(*store)
    assert seen
    assert set(seen) == {client}


def test_workers_of_another_version_are_refused_in_one_line(monkeypatch):
    with threads(1) as client:
        found = client.get_versions(packages=["bigfs"])
        worker = next(iter(found["workers"].values()))
        clusters._require_same_versions(found)
        worker["packages"]["bigfs"] = "0.0.9"
        monkeypatch.setattr(client, "get_versions", lambda **_: found)
        clusters._prepared.pop(client, None)
        with pytest.raises(
            engine.ClusterLostError, match=r"with bigfs 0\.0\.9, and this process Python"
        ):
            engine.map_tiles(len, ["a"])
        worker["packages"]["bigfs"] = None
        with pytest.raises(engine.ClusterLostError, match=r"without bigfs, and this process"):
            engine.map_tiles(len, ["a"])


@pytest.mark.process
def test_a_worker_with_another_version_installed_is_refused(tmp_path):
    (tmp_path / "bigfs-0.0.9.dist-info").mkdir()
    (tmp_path / "bigfs-0.0.9.dist-info" / "METADATA").write_text("Name: bigfs\nVersion: 0.0.9\n")
    (tmp_path / "other.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n")
    own = {"processes": True, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with LocalCluster(n_workers=1, preload=[str(tmp_path / "other.py")], **own) as running:
        with Client(running), pytest.raises(engine.ClusterLostError) as refused:
            engine.map_tiles(len, ["a"])
        with pytest.raises(engine.ClusterLostError), engine.cluster(running.scheduler_address):
            pass
    assert "with bigfs 0.0.9, and this process Python" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cluster_of_others_is_left_as_it_was_and_each_client_is_prepared():
    def has_plugin(dask_worker):
        return "bigfs-relief" in dask_worker.plugins

    with threads(1) as own:
        with engine.cluster(own.cluster.scheduler_address):
            assert all(own.run(has_plugin).values())
        assert not any(own.run(has_plugin).values())
        engine.map_tiles(len, ["a"])
        assert all(own.run(has_plugin).values())


@pytest.mark.parametrize("workers", [-2, -5])
def test_a_number_of_workers_below_minus_one_is_refused(workers):
    with pytest.raises(ValueError, match="0 for this process alone, or -1 for one per core"):
        engine.cluster(workers=workers).__enter__()


def test_minus_one_starts_a_worker_per_core(monkeypatch):
    asked = []

    @contextlib.contextmanager
    def local(workers, *_):
        asked.append(workers)
        raise OSError("stopped here")
        yield

    monkeypatch.setattr(clusters, "_local", local)
    with contextlib.suppress(OSError), engine.cluster(workers=-1):
        pass
    assert asked == [clusters.CPU_COUNT]


def test_a_pass_goes_through_few_functions_and_asks_once_who_runs(store):
    root, calls = str(Path(bigfs.__file__).parent), []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and "<" not in code.co_name:
            calls.append(code.co_qualname)

    X, _ = store
    V = np.ones((X.shape[0], 200))  # it travels once, as the residual of SparGE does
    with threads(set_as_default=False) as own, engine.cluster(own):
        X.map(shape, 1, V)
        sys.setprofile(note)
        try:
            X.map(shape, 1, V)
        finally:
            sys.setprofile(None)
    assert len(set(calls)) <= 25, sorted(set(calls))
    assert calls.count("client") == 1


def shape(block, start, stop, *_):
    return block.shape


# --- what is sent ---------------------------------------------------------------------------------


class Planning(OnCluster):
    """An executor that notes its tasks and runs none."""

    def threads(self):
        return dict.fromkeys(map(str, range(self.client.n_workers)), 1)

    def submit(self, fn, tiles, shared, each, priority=0):
        self.client.sent += len(tiles)
        return [SimpleNamespace(key=str(i), add_done_callback=None) for i in range(len(tiles))]

    def wait(self, futures):
        self.client.most = max(self.client.most, len(futures))

    def gather(self, futures, label=None, steps=None):
        return [None] * len(futures)


def nothing(*_):
    return None


@pytest.mark.parametrize("workers", [2, 32, 256, 1024])
def test_a_neighbor_graph_of_rcv1_is_planned_for_any_number_of_workers(workers, monkeypatch):
    n = 804_414
    plan = Planning(SimpleNamespace(n_workers=workers, sent=0, most=0))
    for module in (engine, executor):
        monkeypatch.setattr(module, "current_executor", lambda local=False: plan)
    with engine.limit_memory(GB):
        size = block_size(n, 24 * 10, predict(n, np.full(47_236, n * 76 / 47_236)))
    assert size % 4096 == 0
    blocks = [RowBlock(a, min(a + size, n), ()) for a in range(0, n, size)]
    b = len(blocks)
    assert b <= max(4 * workers, 20)  # twenty fit in the memory
    tracemalloc.start()
    X = SimpleNamespace(local=False, passes=0)
    compare_pairs(X, blocks, Step(nothing, ()), Step(nothing, ()), Step(nothing, ()), "neighbors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.client.sent == b * (b + 3) // 2 <= 20_000
    assert peak < 20e6


def test_an_array_in_a_file_has_no_inputs_and_few_blocks(tmp_path, rng, monkeypatch):
    S = rng.random((400, 20))
    file = zarr.open(str(tmp_path / "a.zarr"), mode="w", shape=S.shape, chunks=(1, 20), dtype="f8")
    file[:] = S
    lazy = da.from_zarr(str(tmp_path / "a.zarr"))
    assert lazy.numblocks == (400, 1)
    for X in (lazy, da.from_array(file, chunks=(1, 20)), lazy + 1, lazy.rechunk((3, 7))):
        assert not engine.lazy_inputs(Matrix.from_dask(X).row_tiles)
    compared, compare = [], row_blocks.compare_pairs

    def counting(X, blocks, *steps):
        compared.append(len(blocks))
        return compare(X, blocks, *steps)

    monkeypatch.setattr("bigfs.graph.neighbors.compare_pairs", counting)
    expected = LaplacianScore(n_features_to_select=3).fit(S)
    found = LaplacianScore(n_features_to_select=3).fit(lazy)
    assert compared == [1, 1]
    np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-9)


def test_the_neighbors_of_many_classes_have_not_a_block_per_class(rng, monkeypatch):
    blocks, compare = [], class_neighbors.compare_pairs

    def counting(X, some, *steps):
        blocks.extend(some)
        return compare(X, some, *steps)

    monkeypatch.setattr(class_neighbors, "compare_pairs", counting)
    ReliefF(n_features_to_select=2).fit(rng.random((400, 10)), np.arange(400) % 100)
    assert len(blocks) == 1
    assert len(blocks[0].parts) == 100


def test_a_shared_operand_travels_once_for_several_maps():
    shared = engine.Shared(np.arange(1000.0))
    with threads(1) as client, counted_tasks(client) as ended:
        for _ in range(3):
            assert engine.map_tiles(total, [0, 1], shared) == [499_500.0] * 2
        assert ended == {"total": 6, "itself": 1}
        client.cancel(shared.at(client))
        assert engine.map_tiles(total, [0], shared) == [499_500.0]
    assert engine.map_tiles(total, [0], shared) == [499_500.0]


def total(tile, values):
    return values.sum()


def test_a_stream_sends_what_the_tiles_share_once(rng):
    rows = np.sort(rng.permutation(4000)[:2000])
    S = rng.random((4000, 40))
    X = Matrix.from_dask(da.from_array(S, chunks=(4000, 1)))
    part = X.take_rows(rows)
    with threads() as client, counted_tasks(client) as ended:
        for _ in range(2):
            np.testing.assert_array_equal(part.columns(range(40)).toarray(), S[rows])
    assert ended["itself"] == 1


def test_blocks_of_rows_travel_without_what_they_share(rng):
    d = 200_000
    X = Matrix.from_dask(da.zeros((40, d), chunks=(10, d)))
    (block,) = row_blocks.row_blocks(X.take_columns(np.arange(1, d)), 40)
    sent = set()
    small = replace_held((block, block), Shared, lambda shared: sent.add(id(shared)))
    assert len(pickle.dumps(small)) < 10_000
    assert len(sent) == 1


def test_arrays_that_traveled_are_aligned():
    """NumPy rounds a product with an array that is not aligned in another way."""
    unaligned = np.ndarray((7,), buffer=np.zeros(57, np.uint8), offset=1)
    unaligned[:] = np.arange(7)
    [pair] = executor.align([Pair(unaligned, 1)])
    assert isinstance(pair, Pair)
    assert pair.values.flags.aligned > unaligned.flags.aligned
    np.testing.assert_array_equal(pair.values, np.arange(7))
    whole = [np.arange(3), (np.arange(2), "a")]
    assert executor.align(whole) is whole
