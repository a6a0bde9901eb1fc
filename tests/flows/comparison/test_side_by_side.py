"""Methods side by side: the answers of one after another, in memory that they share."""

import threading

import numpy as np
import pytest
from bigfs.flows.comparison import bench, standings
from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.compare import run_method, run_methods
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.comparison.side_by_side import run_side_by_side

from bigfs import engine
from tests.helpers import stages
from tests.helpers.processes import write_corpus

METHODS = ["anova", "laplacian", "mrmr", "lsdf", "sparge-lda", "f-regression"]
MIB = 1 << 20


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    corpus = write_corpus(folder / "corpus.jsonl", seed=3, rows=300)
    return stages.stage(corpus, str(folder / "c.zarr"))["store"]


def choose_all(store, folder, at_once):
    request = Comparison(
        source=store, store=store, out=str(folder), methods=METHODS, sizes=[4, 12], at_once=at_once
    )
    own = Bench(request)
    folder.mkdir()
    return own, *run_methods(request, own)


def test_methods_side_by_side_choose_as_one_after_another(store, tmp_path, monkeypatch):
    graphs = []
    monkeypatch.setattr(
        bench.storage,
        "graph",
        lambda *a, graph=bench.storage.graph, **k: graphs.append(a[1]) or graph(*a, **k),
    )
    _, one, failures, _ = choose_all(store, tmp_path / "one", 1)
    made = len(graphs)
    own, many, same_failures, _ = choose_all(store, tmp_path / "many", 3)
    assert len(graphs) == 2 * made == 2
    assert (
        same_failures == failures == {"f-regression": "it cannot learn from one class per sample"}
    )
    assert [outcome.method for outcome in many] == [outcome.method for outcome in one]
    for alone, beside in zip(one, many, strict=True):
        for m, index in alone.sets.items():
            np.testing.assert_array_equal(beside.sets[m], index)
        np.testing.assert_array_equal(beside.losses, alone.losses)
        assert beside.figures["passes"] == alone.figures["passes"]
    figures = {outcome.method: outcome.figures for outcome in many}
    for method in METHODS[:-1]:
        assert figures[method]["at_once"] == 3
        assert figures[method]["processor_seconds"] is figures[method]["peak_memory"] is None
    table = standings.make_standings(own, many, failures)
    assert "Up to 3 methods ran at once" in standings.explanation(table)[0]
    assert all(row[2:4] == ["–", "–"] for row in standings.cost_rows(table)[1:])


def test_a_method_that_does_not_fit_beside_another_runs_after_it(store, tmp_path):
    held, refused, ran, reasons = threading.Event(), threading.Event(), [], []

    def run(_step, request, own, method):
        if method == "laplacian" and own.at_once > 1:
            assert held.wait(60)
        try:
            engine.require_memory(60 * MIB, method)
        except engine.MemoryInUse as error:
            reasons.append(str(error))
            refused.set()
            raise
        ran.append((method, own.at_once))
        if method == "anova":
            held.set()
            assert refused.wait(60)
        return run_method(request, own, method)

    with engine.limit_memory(100 * MIB):
        given = {"methods": METHODS[:2], "sizes": [4], "at_once": 2}
        request = Comparison(source=store, store=store, out=str(tmp_path / "out"), **given)
        own = Bench(request)
        (tmp_path / "out").mkdir()
        outcomes, failures, _ = run_methods(request, own, run)
    assert not failures
    assert reasons == ["laplacian needs 60.00 MiB, and 60.00 MiB of 100.00 MiB are in use"]
    assert ran == [("anova", 2), ("laplacian", 1), ("all features", 1)]
    assert [outcome.figures["at_once"] for outcome in outcomes[:2]] == [2, 1]


def test_what_does_not_fit_alone_is_refused_as_ever():
    memory = engine.SharedMemory()
    with engine.limit_memory(10), memory.share():
        with pytest.raises(engine.NotEnoughMemory):
            engine.require_memory(11, "a step")
        engine.require_memory(10, "a step")
        engine.require_memory(4, "a smaller step")  # the same part holds the larger one
        with memory.share(), pytest.raises(engine.MemoryInUse):
            engine.require_memory(1, "a step of another part")
    with engine.limit_memory(10), memory.share():
        engine.require_memory(10, "the first part gave back what it held")


def test_the_first_error_ends_the_others():
    started, ended = threading.Event(), []

    def call(name):
        if name == "wrong":
            assert started.wait(60)
            raise KeyError(name)
        started.set()
        try:
            while True:
                threading.Event().wait(0.01)
        except KeyboardInterrupt:
            ended.append(name)
            raise

    with pytest.raises(KeyError, match="wrong"):
        run_side_by_side(call, ["endless", "wrong", "never begun"], 2)
    assert ended == ["endless"]
