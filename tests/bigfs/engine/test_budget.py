"""The memory limit: given, of a control group, or of a worker's thread; never what is free now."""

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster, system

from bigfs import RLSR, Matrix, engine
from bigfs.engine import clusters, executor, memory, workers
from bigfs.engine.budget import IDLE, SERIAL, current_session, holding_session
from bigfs.engine.workers import own_memory
from bigfs.flows.options import ClusterOptions
from bigfs.graph.approximate.cost import GraphCost
from bigfs.graph.row_blocks import block_size
from bigfs.linalg.ridge.plan import choose_solver, project_costs
from bigfs.matrix.panels import strip_width

GB = 10**9


def test_a_serial_block_has_the_limit_that_it_is_given():
    with engine.cluster(workers=0, memory_limit="512MB"):
        assert engine.memory_limit() == 512 * 10**6
        with pytest.raises(engine.MemoryLimitError, match=r"488\.28 MiB is allowed"):
            engine.require_memory(GB, "a step")
    for none in (None, "auto"):
        with engine.cluster(workers=0, memory_limit=none):
            assert engine.memory_limit() == system.MEMORY_LIMIT


@pytest.mark.parametrize("limit", [2 * GB, 64 * GB])
def test_the_limit_of_a_container_holds_whatever_the_machine_has_free(limit, monkeypatch):
    monkeypatch.setattr(system, "MEMORY_LIMIT", limit)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: pytest.fail("asked what is free"))
    assert engine.memory_limit() == limit
    assert engine.workers._capacity() == 0.25 * limit
    with engine.limit_memory(GB):
        assert engine.workers._capacity() == 0.25 * GB


@pytest.mark.process
def test_the_threads_of_a_worker_share_its_libraries_and_divide_the_rest():
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=4,
            processes=False,
            memory_limit="2GB",
            dashboard_address="127.0.0.1:0",
        ) as running,
        Client(running, set_as_default=False) as own,
        engine.cluster(own),
    ):
        limit = engine.memory_limit()
        (inside,) = engine.map_tiles(limit_inside, [0])
        assert 4 * engine.task_memory() + IDLE < 2 * GB
    assert inside == limit == int(IDLE + (2 * GB - IDLE) / 4)


def limit_inside(tile):
    return engine.memory_limit()


@pytest.mark.parametrize("workers", [1, 2, 32])
@pytest.mark.parametrize("limit", [GB, 4 * GB, 16 * GB, 64 * GB])
def test_the_blocks_of_a_graph_and_the_strips_follow_from_limit_and_workers(
    limit, workers, monkeypatch
):
    cost = GraphCost(1.0, 1.0, row_bytes=500.0, column_bytes=0)
    monkeypatch.setattr(engine, "n_workers", lambda: workers)
    monkeypatch.setattr(engine, "client", lambda: None if workers == 1 else object())
    with engine.limit_memory(limit):
        rows, width = block_size(10**6, 240, cost), strip_width(10**6, 50)
    assert rows == expected_rows(limit, workers)
    assert width == 6  # by the 1 GB that every machine plans for
    assert 2 * rows * 740 < 0.1 * limit or rows == 4096


def expected_rows(limit, workers):
    """As many rows as take 4 % of the limit, or four blocks per worker, in steps of 4,096."""
    fitting = int(min(0.04 * limit / 740, 10**6)) // 4096 * 4096
    return min(fitting, -(-(10**6) // (4 * workers * 4096)) * 4096 if workers > 1 else 10**6)


# --- what a process holds beside a step ---------------------------------------------------------


def test_a_step_is_refused_beside_what_the_process_holds(monkeypatch):
    """Steps were compared with the whole limit of the process: 1,135 MB were taken of 600."""
    monkeypatch.setattr(executor, "own_memory", lambda: 400 * 10**6)
    with engine.cluster(workers=0, memory_limit="600MB"), engine.session():
        engine.require_memory(200 * 10**6, "a step")
        with pytest.raises(
            engine.MemoryLimitError,
            match=r"a step needs 190\.73 MiB in one process in addition to the 381\.47 MiB that "
            r"it holds and 572\.20 MiB is allowed",
        ):
            engine.require_memory(200 * 10**6 + 1, "a step")


def test_what_a_process_holds_is_measured_at_the_entry(monkeypatch):
    """A new process holds less, and comes to hold `IDLE` as it loads the kernels of a fit."""
    held = []
    monkeypatch.setattr(executor, "own_memory", own_memory)
    monkeypatch.setattr(workers, "resident", lambda: held[-1])
    monkeypatch.setattr(workers, "cached_bytes", lambda: 1000)

    def at_entry():
        with engine.cluster(workers=0, memory_limit="64GB"), engine.session():
            return current_session().baseline

    held.append(GB)
    with engine.cluster(workers=0, memory_limit="64GB"), engine.session():
        held.append(2 * GB)
        with engine.session():
            assert current_session().baseline == GB - 1000
    assert at_entry() == 2 * GB - 1000
    held.append(IDLE // 2)
    assert at_entry() == IDLE


def test_what_the_user_has_loaded_refuses_no_step_of_a_default_limit(monkeypatch):
    """A run in a notebook that held 1.06 GB was refused by the default limit of 1 GB."""
    monkeypatch.setattr(executor, "own_memory", lambda: 2 * GB)
    with ClusterOptions(workers=0).start():
        engine.require_memory(600 * 10**6, "a step")
        with (
            engine.session(),
            pytest.raises(engine.MemoryLimitError, match=r"in addition to the 352\.00 MiB"),
        ):
            engine.require_memory(700 * 10**6, "a step")
    # a limit that is given is that of all
    refused = pytest.raises(
        engine.MemoryLimitError, match=r"in addition to the 1\.86 GiB that it holds"
    )
    with ClusterOptions(workers=0, memory_limit="1GB").start(), refused:
        engine.require_memory(1, "a step")


def test_what_the_user_has_loaded_refuses_no_step_beside_workers(monkeypatch):
    monkeypatch.setattr(executor, "own_memory", lambda: 2 * GB)
    monkeypatch.setattr(executor, "known_workers", dict)
    with engine.limit_memory(GB), holding_session(client=object(), baseline=None):
        engine.require_memory(600 * 10**6, "a step")
    refused = pytest.raises(
        engine.MemoryLimitError, match=r"in addition to the 1\.86 GiB that it holds"
    )
    with holding_session(client=SERIAL, limit=GB, baseline=None), refused:
        engine.require_memory(1, "a step")


def test_the_limit_of_a_step_has_nothing_beside_it():
    with engine.limit_memory(1000), engine.session():
        engine.require_memory(1000, "a step")
        assert engine.spare_memory() == 1000


def test_the_cached_tiles_are_dropped_where_a_step_needs_their_room(monkeypatch):
    monkeypatch.setattr(executor, "own_memory", lambda: 400 * 10**6)
    engine.clear_cache()
    with engine.cluster(workers=0, memory_limit="600MB"), engine.session():
        engine.get_cached(("a", 1), lambda: np.ones(1 << 20))
        engine.require_memory(100 * 10**6, "a step")
        assert engine.workers.cached_bytes() == 8 << 20
        engine.require_memory(199 * 10**6, "a step")
        assert not engine.workers.cached_bytes()


def test_the_smallest_worker_has_room_for_a_tile(monkeypatch):
    """One of 380 MB was started, whose large tasks may take 0 bytes."""
    refused = pytest.raises(ValueError, match="must be above 511 MB")
    with refused, engine.cluster(workers=1, memory_limit="380MB"):
        pass
    monkeypatch.setattr(memory, "client", lambda: True)
    monkeypatch.setattr(memory, "memory_limit", lambda: clusters.LEAST_WORKER)
    assert engine.task_memory() >= 0.8 * engine.TILE_TASK


def test_the_planned_memory_is_declared_and_recorded(rng):
    """It was 1 GB on every machine, and only naming a solver changed a choice."""
    X = Matrix.from_array(sp.random_array((60, 40), density=0.2, format="csr", rng=rng))
    costs = project_costs(8000, 30_000, np.full(30_000, 800), 50)
    assert choose_solver(costs).solver == "cg"
    y = np.arange(60) % 2
    assert "planned_memory" not in RLSR(n_features_to_select=3, gamma=1.0).fit(X, y).result_.stats
    with engine.cluster(workers=0, planned_memory="16GB"):
        assert engine.planned_memory() == min(16 * GB, engine.memory_limit())
        stats = RLSR(n_features_to_select=3, gamma=1.0).fit(X, y).result_.stats
        assert stats["planned_memory"] == 16 * GB
        if engine.spare_memory() > 3 * GB:
            assert choose_solver(costs).solver == "woodbury"
    assert engine.planned_memory() == min(GB, engine.memory_limit())
