"""Processor time and peak memory of one part of the work, in this process and on workers."""

import sys
import time

import pytest

from bigfs import engine
from bigfs.engine import usage


def test_processor_time_counts_what_is_computed():
    before = engine.processor_time()
    assert list(before) == ["driver"]
    began = time.process_time()
    sum(range(300_000))
    used = time.process_time() - began
    assert engine.processor_time_since(before) >= used > 0


def test_a_worker_that_came_later_counts_whole(monkeypatch):
    monkeypatch.setattr(usage, "processor_time", lambda: {"driver": 5.0, "b": 3.0, "c": 2.0})
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


def test_a_system_that_keeps_the_peak_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(usage, "RESET", tmp_path / "missing" / "clear_refs")
    assert not engine.reset_peak_memory()
