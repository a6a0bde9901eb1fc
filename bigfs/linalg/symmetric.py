"""Large symmetric matrices, of which only one half is held, in single precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigfs import engine
from bigfs.types import AnyArray, FloatArray, IntArray

LARGE_SIZE = 4096  # rows from which a symmetric matrix is held in panels
PANEL_ROWS = 256


class SymmetricPanels:
    """A symmetric matrix in panels of rows, each of which ends at the diagonal."""

    def __init__(self, panels: list[AnyArray]) -> None:
        self._panels = panels

    @classmethod
    def of(cls, square: FloatArray) -> SymmetricPanels:
        """Return the panels of a square array."""
        every = np.arange(len(square))
        return cls([_panel(square, every, *bounds) for bounds in _bounds(len(square))])

    def __len__(self) -> int:
        return self._panels[-1].shape[1] if self._panels else 0

    def __iter__(self) -> Iterator[tuple[int, AnyArray]]:
        """Iterate over the panels, each with its first row."""
        for panel in self._panels:
            yield panel.shape[1] - len(panel), panel

    def row(self, i: int) -> AnyArray:
        """Return row i up to the diagonal."""
        panel = self._panels[i // PANEL_ROWS]
        return panel[i % PANEL_ROWS, : i + 1]

    def __matmul__(self, W: FloatArray) -> FloatArray:
        product = np.zeros((len(self), *W.shape[1:]))
        for start, panel in self:
            rows, stop = panel.astype(np.float64), panel.shape[1]
            product[start:stop] += rows @ W[:stop]
            product[:start] += rows[:, :start].T @ W[start:stop]
        return product

    def times_rows(self, members: IntArray, R: FloatArray) -> FloatArray:
        """Return the product with the matrix that has the rows R at `members`, which increase."""
        product = np.zeros((len(self), R.shape[1]))
        for start, panel in self:
            stop = panel.shape[1]
            first, last = np.searchsorted(members, [start, stop])
            rows = panel[members[first:last] - start].astype(np.float64)
            product[:stop] += rows.T @ R[first:last]
            earlier = panel[:, members[:first]].astype(np.float64)
            product[start:stop] += earlier @ R[:first]
        return product

    def take(self, positions: IntArray) -> FloatArray | SymmetricPanels:
        """Return the matrix at increasing `positions`, in panels if they are many."""
        if len(positions) >= LARGE_SIZE:
            return SymmetricPanels(
                [_panel(self, positions, *bounds) for bounds in _bounds(len(positions))]
            )
        return self.square(positions)

    def square(self, positions: IntArray) -> FloatArray:
        """Return the matrix at increasing `positions`, as an array."""
        square = np.empty((len(positions), len(positions)))
        for i, position in enumerate(positions):
            square[i, : i + 1] = square[: i + 1, i] = self.row(position)[positions[: i + 1]]
        return square

    def widened(self, positions: IntArray, size: int) -> SymmetricPanels:
        """Return a matrix of `size` rows that holds this one at `positions` and is zero elsewhere.
        This one is empty then: each of its panels is freed once its rows are moved."""
        panels = []
        for start, stop in reversed(_bounds(size)):
            first, last = np.searchsorted(positions, [start, stop])
            panel = engine.lazy_zeros((stop - start, stop), np.float32)
            for i in range(first, last):
                panel[positions[i] - start, positions[: i + 1]] = self.row(i)
            _mirror(panel[:, start:])
            panels.append(panel)
            del self._panels[-(-first // PANEL_ROWS) :]
        return SymmetricPanels(panels[::-1])

    def set_rows(self, positions: IntArray, rows: FloatArray) -> None:
        """Write whole rows at `positions`, which increase, and the columns that equal them."""
        for start, panel in self:
            stop = panel.shape[1]
            first, last = np.searchsorted(positions, [start, stop])
            panel[positions[first:last] - start] = rows[first:last, :stop]
            panel[:, positions[:last]] = rows[:last, start:stop].T


def dense(matrix: FloatArray | SymmetricPanels) -> FloatArray:
    """Return a symmetric matrix as a new array."""
    if isinstance(matrix, np.ndarray):
        return np.array(matrix)
    return matrix.square(np.arange(len(matrix)))


def _bounds(size: int) -> list[tuple[int, int]]:
    """Return the first row of each panel, and the one after its last."""
    return [(start, min(start + PANEL_ROWS, size)) for start in range(0, size, PANEL_ROWS)]


def _panel(
    matrix: FloatArray | SymmetricPanels, positions: IntArray, start: int, stop: int
) -> AnyArray:
    """Return the panel of these rows of the matrix at `positions` × `positions`."""
    panel = engine.lazy_zeros((stop - start, stop), np.float32)
    for i in range(start, stop):
        row = matrix[positions[i]] if isinstance(matrix, np.ndarray) else matrix.row(positions[i])
        panel[i - start, : i + 1] = row[positions[: i + 1]]
    _mirror(panel[:, start:])
    return panel


def _mirror(square: AnyArray) -> None:
    """Write what is below the diagonal above it."""
    square[:] = np.tril(square) + np.tril(square, -1).T
