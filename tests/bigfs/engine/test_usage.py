"""Processor time and peak memory of one part of the work, in this process and on workers."""

import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from bigfs import engine
from bigfs.engine import executor, measure, memory, workers
from bigfs.engine.budget import IDLE


def test_processor_time_counts_what_is_computed():
    before = engine.processor_time()
    assert list(before) == ["driver"]
    began = time.process_time()
    sum(range(300_000))
    used = time.process_time() - began
    assert engine.processor_time_since(before) >= used > 0


def test_a_worker_that_came_later_counts_whole(monkeypatch):
    monkeypatch.setattr(measure, "processor_time", lambda: {"driver": 5.0, "b": 3.0, "c": 2.0})
    assert engine.processor_time_since({"driver": 1.0, "a": 50.0, "b": 1.0}) == 4.0 + 2.0 + 2.0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the peak")
def test_the_peak_starts_again():
    size = 200 << 20
    held = bytearray(b"1") * size
    with_it = engine.peak_memory()["driver"]
    del held
    assert with_it >= size
    assert engine.reset_peak_memory()
    assert engine.peak_memory()["driver"] < with_it - size // 2


@pytest.mark.parametrize("shape", [(0,), (0, 3), (7,), (2, 3, 4)])
def test_lazy_zeros_are_zeros(shape):
    zeros = engine.lazy_zeros(shape, np.float32)
    np.testing.assert_array_equal(zeros, np.zeros(shape, np.float32), strict=True)
    zeros += 1
    np.testing.assert_array_equal(zeros.copy(), np.ones(shape))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems choose their pages themselves")
def test_rows_that_are_not_written_take_no_memory():
    before = psutil.Process().memory_info().rss
    zeros = engine.lazy_zeros((40_000, 100))
    zeros[::200] = 1
    assert zeros.sum() == 200 * 100
    assert psutil.Process().memory_info().rss - before < zeros.nbytes / 8


def test_a_large_task_leaves_room_for_the_libraries_of_a_worker(monkeypatch):
    with engine.limit_memory(10**9):
        assert engine.task_memory() == 5e8
    monkeypatch.setattr(memory, "client", lambda: True)
    for limit, expected in ((10**9, 5e8), (5 * 10**8, 0.9 * 5e8 - IDLE), (10**8, 0)):
        monkeypatch.setattr(memory, "memory_limit", lambda limit=limit: limit)
        assert engine.task_memory() == expected


def test_the_cache_makes_room_for_a_large_task_only(monkeypatch):
    monkeypatch.setattr(workers, "worker_limit", lambda: 10**9)
    monkeypatch.setattr(workers, "resident", lambda: 5 * 10**8)
    engine.clear_cache()
    for size, is_kept in ((2 * 10**8, True), (3 * 10**8, False)):
        engine.get_cached(("room",), lambda: 1)
        engine.make_room(size)
        assert bool(workers._cache) == is_kept


@pytest.mark.parametrize("limit", [512 * 10**6, 10**9, np.inf])
def test_what_stays_between_tasks_leaves_room_for_the_next_one(monkeypatch, limit):
    """At 512 MB a worker that kept three quarters was paused, or ended, in its next task."""
    task, libraries, block = 96 << 20, 236 << 20, np.zeros(16 << 20, dtype=np.uint8)
    monkeypatch.setattr(workers, "worker_limit", lambda: limit)
    monkeypatch.setattr(
        workers,
        "resident",
        lambda: libraries + sum(size for _, size in workers._cache.values()),
    )
    engine.clear_cache()
    kept = [
        ("room", i) for i in range(30) if engine.get_cached(("room", i), lambda: block) is block
    ]
    before = [key for key in kept if key in workers._cache]
    workers.release_memory()
    after = list(workers._cache)
    assert workers.resident() + task <= 0.8 * limit
    assert after == before[: len(after)]  # the oldest stay
    assert len(after) == len(before) or workers.resident() + block.nbytes + task > 0.8 * limit
    engine.clear_cache()


def test_a_system_that_keeps_the_peak_says_so(change, tmp_path):
    change(measure.RESET, tmp_path / "missing" / "clear_refs")
    assert not engine.reset_peak_memory()


class Unreachable:
    """A client whose scheduler does not answer."""

    status = "running"
    scheduler = SimpleNamespace(identity=None, who_has=None)

    def run(self, *_, **__):
        raise OSError("Timed out trying to connect to tls://127.0.0.1:1 after 5 s")

    sync = nthreads = run


@pytest.mark.parametrize(
    ("module", "ask"),
    [
        ("executor", lambda: executor.current_executor().threads()),
        ("measure", measure.peak_memory),
        ("memory", memory.memory_limit),
    ],
)
def test_a_scheduler_that_does_not_answer_is_a_lost_cluster(module, ask, monkeypatch):
    for name in {module, "executor"}:
        monkeypatch.setattr(f"bigfs.engine.{name}.client", Unreachable)
    with pytest.raises(
        engine.ClusterLostError, match="the connection to the Dask cluster was lost"
    ):
        ask()
