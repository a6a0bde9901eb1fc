"""Operands that stay with the workers: they travel once, and survive the death of a worker."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bigfs import Matrix, engine


@dataclass(frozen=True)
class Rows:
    """A tile of rows that a worker makes."""

    start: int
    stop: int

    def load(self):
        return np.arange(self.start, self.stop, dtype=float)[:, None] * np.ones(3)


@dataclass(frozen=True)
class AddProducts:
    """Add blockᵀv, and kill the worker at a tile, once, if there is a marker to write."""

    marker: str | None = None

    def __call__(self, block, start, stop, v, total):
        if self.marker is not None and start == 40 and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        product = block.T @ v
        return product if total is None else total + product


def matrix():
    return Matrix((60, 3), rows=[Rows(a, a + 20) for a in range(0, 60, 20)])


def kept_values():
    return [np.arange(a, a + 20, dtype=float) ** 2 for a in range(0, 60, 20)]


EXPECTED = np.full(3, (np.arange(60.0) ** 3).sum())


def test_kept_operands_are_the_values_themselves_without_a_cluster():
    values = kept_values()
    kept = engine.KeptOperands(values)
    assert all(a is b for a, b in zip(kept.at_workers(), values, strict=True))
    np.testing.assert_array_equal(
        matrix().sum(AddProducts(), 0, split=[kept], max_parts=2), EXPECTED
    )
    with engine.cluster(workers=0):
        assert all(a is b for a, b in zip(kept.at_workers(), values, strict=True))


def test_kept_operands_are_made_where_they_are_asked_for():
    made = []

    def make(rows):
        made.append(rows)
        return np.arange(rows.start, rows.stop, dtype=float) ** 2

    kept = engine.KeptOperands([slice(a, a + 20) for a in range(0, 60, 20)], make=make)
    assert not made
    np.testing.assert_array_equal(
        matrix().sum(AddProducts(), 0, split=[kept], max_parts=2), EXPECTED
    )
    assert len(made) == 3


@pytest.mark.process
def test_kept_operands_travel_once_and_survive_a_worker(tmp_path):
    X, kept = matrix(), engine.KeptOperands(kept_values())
    with engine.cluster(workers=2, memory_limit="1GB") as client:
        sent = []
        scatter = client.scatter
        client.scatter = lambda data, **options: (sent.append(len(data)), scatter(data, **options))[
            1
        ]

        def add_up(marker=None):
            total = X.sum(AddProducts(marker), 0, split=[kept], max_parts=3)
            np.testing.assert_array_equal(total, EXPECTED)
            return sum(sent)

        assert add_up() == add_up() == 3  # values that have traveled, after one pass and after two
        assert not kept.is_lost()
        assert add_up(str(tmp_path / "killed")) > 3  # in a pass
        assert (tmp_path / "killed").exists()
        sent.clear()
        [*_, holder] = client.who_has(kept.at_workers()).values()
        pid = client.run(os.getpid, workers=holder)[holder[0]]
        os.kill(pid, signal.SIGKILL)  # between two passes
        assert 0 < add_up() <= 3
    assert X.passes == 4
    np.testing.assert_array_equal(  # another cluster gets them anew
        X.sum(AddProducts(), 0, split=[kept], max_parts=3), EXPECTED
    )


@pytest.mark.process
def test_a_lost_cluster_is_not_waited_for():
    kept = engine.KeptOperands(kept_values())
    tried = []

    def fail():
        tried.append(1)
        raise engine.ClusterLost("gone")

    with engine.cluster(workers=1, memory_limit="1GB"):
        kept.at_workers()
        with pytest.raises(engine.ClusterLost, match="gone"):
            engine.while_lost(fail, [kept, [1, 2, 3]])
    assert len(tried) == 1
