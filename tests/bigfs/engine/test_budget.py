"""The memory limit: given, of a control group, or of a worker's thread; never what is free now."""

import psutil
import pytest
from distributed import Client, LocalCluster, system

from bigfs import engine
from bigfs.engine.budget import LIBRARIES
from bigfs.graph.approximate.cost import GraphCost
from bigfs.graph.row_blocks import block_size
from bigfs.matrix.panels import strip_width

GB = 10**9


def test_a_serial_block_has_the_limit_that_it_is_given():
    with engine.cluster(workers=0, memory_limit="512MB"):
        assert engine.memory_limit() == 512 * 10**6
        with pytest.raises(engine.NotEnoughMemory, match=r"488\.28 MiB is allowed"):
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
        assert 4 * engine.task_memory() + LIBRARIES < 2 * GB
    assert inside == limit == int(LIBRARIES + (2 * GB - LIBRARIES) / 4)


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
