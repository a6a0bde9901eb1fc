"""Arrays in temporary files, which tasks of other processes read and write by their path."""

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import JHLSR, Matrix, engine
from bigfs.engine.budget import Shares
from bigfs.matrix.panels import ColumnStrips, strip_width, times_by_strips
from tests.helpers.fitting import fit_few_steps


@dataclass(frozen=True)
class Rows:
    """A tile of sparse rows that a worker makes. It ends a worker once, if there is a marker."""

    start: int
    stop: int
    marker: str | None = None

    def load(self):
        if self.marker is not None and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows()[self.start : self.stop]


def rows():
    """60 × 20, where each column has some non-zeros."""
    X = sp.random_array((60, 20), density=0.3, format="lil", rng=np.random.default_rng(0))
    X[0] = 1
    return sp.csr_array(X)


def matrix(marker=None):
    tiles = [Rows(a, a + 20, marker if a == 20 else None) for a in range(0, 60, 20)]
    return Matrix((60, 20), rows=tiles)


def test_numbers_are_read_where_they_were_written(rng):
    numbers = rng.normal(size=(5, 3))
    with ColumnStrips.of(numbers, 2) as file:
        np.testing.assert_array_equal(file.read(slice(0, 2), 1, 4), numbers[1:4, :2])
        file.write(slice(2, 3), 3, numbers[:2, :1])
        np.testing.assert_array_equal(file.rows(3, 5), np.c_[numbers[3:, :2], numbers[:2, 0]])
        assert file.rows(2, 2).shape == (0, 3)
    assert not Path(file.path).exists()
    with pytest.raises(OSError, match=r"cannot be written \(No such file or directory\): set TMPD"):
        file.write(slice(0, 2), 0, numbers)


@pytest.mark.parametrize("width", [1, 3, 7])
def test_strips_are_read_by_columns_and_by_rows(width, rng):
    P = rng.normal(size=(50, 7))
    with ColumnStrips.of(P, width) as strips:
        assert strips.whole == (strips.path is None) == (width == 7)
        np.testing.assert_array_equal(np.hstack([strip for _, strip in strips]), P)
        np.testing.assert_array_equal(strips.rows(11, 30), P[11:30])
        strips.replace(lambda columns, strip: strip + columns.start)
        moved = P + np.concatenate([np.full(c.stop - c.start, c.start) for c in strips.slices])
        np.testing.assert_array_equal(strips.rows(0, 50), moved)
    if strips.path is not None:
        assert not Path(strips.path).exists()


def test_strips_take_whole_lines_of_the_cache():
    """The arrays of a strip take 11 % of the limit: 16 n bytes per column."""
    n = 1000
    widths = []
    for limit in (1e5, 8e5, 1.2e6, 2.5e6, 3.2e6, 2e7):
        with engine.limit_memory(limit):
            widths.append(strip_width(n, 103))
    assert widths == [1, 5, 8, 16, 16, 103]


def test_products_by_strips_are_those_of_the_whole(rng):
    X, W, V = rows(), rng.normal(size=(20, 5)), rng.normal(size=(60, 5))
    tiled = matrix()
    with times_by_strips(tiled, W, 2) as product:
        np.testing.assert_allclose(product.rows(0, 60), X @ W, rtol=1e-12)
    with ColumnStrips.of(V, 2) as strips:
        np.testing.assert_allclose(tiled.T @ strips, X.T @ V, rtol=1e-12)
    assert tiled.passes == 2


def test_a_pass_that_fails_leaves_no_file(tmp_path, monkeypatch, rng):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    W, P = rng.normal(size=(20, 5)), rng.normal(size=(60, 5))

    def fail(*arguments):
        assert len(list(tmp_path.iterdir())) == 1
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "load", fail)
        with pytest.raises(OSError, match="no space left"):
            times_by_strips(matrix(), W, 2)
    monkeypatch.setattr(ColumnStrips, "write", fail)
    with pytest.raises(OSError, match="no space left"):
        ColumnStrips.of(P, 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_workers_write_the_rows_of_a_file_even_if_one_of_them_dies(tmp_path, rng):
    W, marker = rng.normal(size=(20, 5)), tmp_path / "died"
    with times_by_strips(matrix(), W, 2) as alone, engine.cluster(workers=2, memory_limit="600MB"):
        tiled = matrix(str(marker))
        with times_by_strips(tiled, W, 2) as product:
            np.testing.assert_array_equal(product.rows(0, 60), alone.rows(0, 60))
            there = tiled.T @ product
        assert marker.exists()
        assert tiled.passes == 2
        np.testing.assert_allclose(there, rows().T @ (rows() @ W), rtol=1e-12)


@pytest.mark.process
def test_jhlsr_chooses_the_same_features_through_a_file_of_its_workers(change):
    """The strips of two workers, of this process, and one strip in memory."""
    y = np.where(np.arange(60) % 4, np.arange(60) % 3, -1)
    change(engine.SHARES, Shares(active_columns=0))  # gather nothing
    given = {"hyperedges": "knn", "n_neighbors": 4, "solver": "cg", "tol": 1e-3, "max_iter": 8}
    whole = fit_few_steps(JHLSR(**given), matrix(), y)
    change(engine.SHARES, Shares(active_columns=0, column_strip=1e-12))
    alone = fit_few_steps(JHLSR(**given), matrix(), y)
    with engine.cluster(workers=2, memory_limit="600MB"):
        spread = fit_few_steps(JHLSR(**given), matrix(), y)
    np.testing.assert_array_equal(spread.coef_, alone.coef_)
    np.testing.assert_allclose(alone.coef_, whole.coef_, atol=1e-8)
    np.testing.assert_array_equal(spread.selected_, whole.selected_)
